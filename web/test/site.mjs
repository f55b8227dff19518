// A server of files for the tests: it counts what it is asked for, and can be told to be gone.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { dirname, extname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";

export const PAGE = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "hushrec", "web");
const TYPES = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css", ".json": "application/json" };

/** Serves PAGE and, by path, what `extra` holds: bytes, or a path to a file. */
export async function serve(extra = {}) {
  const asked = [];
  const server = createServer(async (request, response) => {
    const path = new URL(request.url, "http://localhost").pathname;
    asked.push({ method: request.method, path, url: request.url, headers: request.headers });
    try {
      const found = extra[path] ?? join(PAGE, normalize(path.endsWith("/") ? `${path}index.html` : path));
      const body = typeof found === "string" ? await readFile(found) : found;
      const tag = `"${body.length}-${body.subarray(-16).toString("hex")}"`;
      const type = TYPES[extname(path) || ".html"] ?? "application/octet-stream";
      const known = request.headers["if-none-match"] === tag;
      response.writeHead(known ? 304 : 200, { "content-type": type, etag: tag, "cache-control": "no-cache" });
      response.end(known ? undefined : body);
    } catch {
      response.writeHead(404).end();
    }
  });
  let connections = 0;
  server.on("connection", () => connections++);
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const address = `http://localhost:${server.address().port}`;
  const close = () => new Promise((done) => { server.close(done); server.closeAllConnections(); });
  return { address, asked, extra, close, connections: () => connections };
}
