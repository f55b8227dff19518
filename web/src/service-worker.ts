/** Keeps the page's files, so it opens without a network; the page keeps the model. */
const worker = globalThis as any;

const STORE = "hushrec page";
const FILES = ["./", "index.html", "page.css", "page.js", "hushrec.js"];

worker.addEventListener("install", (event: any) => {
  event.waitUntil(caches.open(STORE).then((store) => store.addAll(FILES)).then(() => worker.skipWaiting()));
});

worker.addEventListener("activate", (event: any) => event.waitUntil(worker.clients.claim()));

worker.addEventListener("fetch", (event: any) => {
  const { request } = event;
  const own = [...FILES, "titles.json", "rules.json"].some((file) => new URL(file, worker.registration.scope).href === request.url.split("?")[0]);
  if (request.method === "GET" && own) event.respondWith(fresh(request));
});

/** The network's file, or the kept one. */
async function fresh(request: Request): Promise<Response> {
  const store = await caches.open(STORE);
  try {
    const found = await fetch(request);
    if (found.ok) await store.put(request, found.clone());
    return found;
  } catch (error) {
    const kept = await store.match(request, { ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}
