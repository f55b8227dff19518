// Builds the client and the page's scripts: `node build.mjs` into hushrec/web, which is committed;
// `--check` says whether what is committed is what the sources give; `--package` fills dist/ for npm.
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const SITE = join(HERE, "..", "hushrec", "web");
const MOST = 15 * 1024; // bytes of the client, minified and gzipped

const shared = { absWorkingDir: HERE, bundle: true, minify: true, target: "es2022", write: false, legalComments: "none" };
const [client, page, worker] = await Promise.all([
  build({ ...shared, entryPoints: ["src/hushrec.ts"], format: "esm" }),
  build({ ...shared, entryPoints: ["src/page.ts"], format: "esm", external: ["./hushrec.js"] }),
  build({ ...shared, entryPoints: ["src/service-worker.ts"], format: "iife" }),
]);
const files = { "hushrec.js": client, "page.js": page, "service-worker.js": worker };
const size = gzipSync(client.outputFiles[0].contents, { level: 9 }).length;
console.log(`client: ${size} bytes minified and gzipped (<= ${MOST}): ${size <= MOST ? "PASS" : "TOO LARGE"}`);
let failed = size > MOST;
for (const [name, { outputFiles: [{ text }] }] of Object.entries(files)) {
  if (process.argv.includes("--check")) {
    if (readFileSync(join(SITE, name), "utf8") === text) continue;
    console.log(`hushrec/web/${name} is not what its sources give; run \`npm run build\` in web/ and commit it`);
    failed = true;
  } else writeFileSync(join(SITE, name), text);
}
if (process.argv.includes("--package")) {
  mkdirSync(join(HERE, "dist"), { recursive: true });
  writeFileSync(join(HERE, "dist", "hushrec.js"), client.outputFiles[0].text);
  const options = ["--emitDeclarationOnly", "--declaration", "--outDir", "dist"];
  execFileSync(process.execPath, [join(HERE, "node_modules", "typescript", "bin", "tsc"), ...options], { cwd: HERE, stdio: "inherit" });
  for (const name of ["page", "service-worker"]) rmSync(join(HERE, "dist", `${name}.d.ts`));
}
process.exitCode = failed ? 1 : 0;
