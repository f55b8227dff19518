// The client and the demo page in headless Chromium.
import { createSocket } from "node:dgram";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { networkInterfaces } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { NOT_STOPPED, STOPPED } from "./plants.mjs";
import { PAGE, serve } from "./site.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const READY = "body[data-state=ready]";
const SETTLED = 1500; // milliseconds in which a request that was not stopped arrives
const MOST_WAITED = 20000; // for those that must arrive, on a busy machine

/** Waits until something holds, but not for ever. */
async function until(holds, most = MOST_WAITED) {
  for (const began = Date.now(); !holds() && Date.now() - began < most; ) await new Promise((done) => setTimeout(done, 50));
  return holds();
}

/** A page on which nothing is forbidden. */
const BARE = Buffer.from("<!doctype html><title>bare</title>");

/** Titles such as a shop's catalogue has. */
const TITLES = Object.fromEntries(
  ["Quiet", "Long", "Last", "Second", "Hidden", "Paper", "Winter", "Silver", "Distant", "Borrowed"].flatMap((first, a) =>
    ["Harbour", "Garden", "Summer", "Letter", "Orchard", "Night", "Voyage", "Window", "Mountain", "Promise"].map((second, b) => [`item-${10 * a + b}`, `The ${first} ${second}`]),
  ),
);

/** The site of the tests: the page with a model, vectors and the tests' own modules. */
export async function testSite(vectorsPath, model) {
  const own = Object.fromEntries(["parity.mjs"].map((name) => [`/${name}`, join(HERE, name)]));
  const worker = `import * as hushrec from "./hushrec.js"; import { parity } from "./parity.mjs";
    parity(hushrec, await (await fetch("./vectors.json")).json()).then(postMessage);`;
  const index = (await readFile(join(PAGE, "index.html"), "utf8")).replace('data-titles=""', 'data-titles="titles.json"');
  const titled = { "/titled/titles.json": Buffer.from(JSON.stringify(TITLES)), "/titled/model.hush": model, "/titled/": Buffer.from(index) };
  for (const name of ["page.css", "page.js", "hushrec.js", "service-worker.js", "index.html"]) titled[`/titled/${name}`] = join(PAGE, name);
  return serve({ ...own, ...titled, "/model.hush": model, "/vectors.json": vectorsPath, "/bare.html": BARE, "/worker.js": Buffer.from(worker) });
}

export async function checkParity(browser, site, report) {
  const page = await browser.newPage();
  await page.goto(`${site.address}/bare.html`);
  const places = {
    "a page": () => Promise.all([import("/hushrec.js"), import("/parity.mjs"), fetch("/vectors.json").then((r) => r.json())]).then(([hushrec, { parity }, vectors]) => parity(hushrec, vectors)),
    "a Web Worker": () => new Promise((done, failed) => {
      const worker = new Worker("/worker.js", { type: "module" });
      worker.onmessage = ({ data }) => done(data);
      worker.onerror = (event) => failed(new Error(event.message));
    }),
  };
  for (const [place, run] of Object.entries(places)) {
    const { faults, largest, checked } = await page.evaluate(run);
    report(`parity with Python in ${place}`, !faults.length && checked > 0, `${checked} histories, largest difference ${largest.toExponential(1)}; ${faults.slice(0, 3).join("; ")}`);
  }
  await page.close();
}

/** A model is fetched once; the kept copy is used where the server says so, where it is the one asked for, and never unchecked. */
export async function checkKept(browser, site, report) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${site.address}/bare.html`);
  site.asked.length = 0;
  const load = (options) => page.evaluate(async (options) => (await (await import("/hushrec.js")).load("/model.hush", options)).digest, options);
  const statuses = [];
  page.on("response", (response) => response.url().endsWith("/model.hush") && statuses.push(response.status()));
  const digest = await load({});
  await page.waitForFunction(async () => (await (await caches.open("hushrec")).keys()).length === 1);
  const [again, pinned] = [await load({}), await load({ digest })];
  await page.evaluate(async () => {
    const store = await caches.open("hushrec");
    const [key] = await store.keys();
    const kept = await store.match(key);
    const bytes = new Uint8Array(await kept.arrayBuffer());
    bytes[bytes.length >> 1] ^= 1;
    await store.put(key, new Response(bytes, { headers: kept.headers }));
  });
  const mended = await load({ digest });
  const same = [again, pinned, mended].every((found) => found === digest);
  report("a kept model is used where nothing changed, and fetched again where it was damaged", same && statuses.join() === "200,304,304,200", statuses.join(", "));
  await context.close();
}

export async function checkDamaged(browser, site, damaged, report) {
  const page = await browser.newPage();
  await page.goto(`${site.address}/bare.html`);
  const files = damaged.map((bytes) => Buffer.from(bytes).toString("base64"));
  const refused = await page.evaluate(async (files) => {
    const { Model, ModelFileError } = await import("/hushrec.js");
    let count = 0;
    for (const file of files) {
      const bytes = Uint8Array.from(atob(file), (c) => c.charCodeAt(0));
      const error = await Model.read(bytes).catch((refusal) => refusal);
      if (error instanceof ModelFileError && !error.message.includes("\n")) count++;
    }
    return count;
  }, files);
  report(`${files.length.toLocaleString("en-US")} damaged files refused in Chromium`, refused === files.length, `${refused} refused`);
  await page.close();
}

/** Somebody's whole visit, by mouse and by keyboard; what reached the network, and what was planted. */
export async function checkVisit(browser, site, report, screenshots) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  const [errors, sent] = [[], []];
  page.on("pageerror", (error) => errors.push(error.message));
  await page.goto(`${site.address}/titled/`);
  await page.waitForSelector(READY);
  context.on("request", (request) => sent.push(request.url()));
  const asked = site.asked.length;
  await rateSome(page);
  const [listed, rated] = [await page.locator("#list li").count(), await page.locator("#rated li").count()];
  const why = await page.locator("#list small").allTextContents();
  const names = await page.locator("#list li > span").allTextContents();
  report("search, rate, list and why", listed === 10 && rated === 3 && why.some((text) => text.startsWith("because of")), `${names.slice(0, 3).join(", ")}: ${why[0]}`);
  await checkKeeping(page, report);
  await checkKeyboard(page, report);
  await axe(page, report, "light");
  await page.waitForTimeout(SETTLED);
  const count = `${await page.textContent("#requests")}${await page.textContent("#blocked")}`;
  report("0 requests after the model is loaded", !sent.length && site.asked.length === asked && count === "0", `${sent.length} seen by the browser, ${site.asked.length - asked} by the server, the page says ${count} ${sent.slice(0, 3)}`);
  report("no error on the page", !errors.length, errors.join("; "));
  await page.emulateMedia({ colorScheme: "dark" });
  await axe(page, report, "dark");
  if (screenshots) await takeScreenshots(page, screenshots);
  await context.close();
}

async function rateSome(page) {
  await page.fill("#search", "e");
  await page.locator("#found li").nth(0).locator("label").nth(4).click();
  await page.locator("#found li").nth(1).locator("label").nth(3).click();
  await page.locator("#found li").nth(2).locator("label").nth(0).click();
}

async function checkKeeping(page, report) {
  const kept = () => page.evaluate(() => JSON.stringify(localStorage) + document.cookie);
  const before = await kept();
  await page.check("#keep");
  const with_ = await kept();
  await page.click("#forget");
  const after = await kept();
  const rated = await page.locator("#rated li").count();
  report("ratings are kept where asked for, and forgotten", before === "{}" && with_.includes("item-") && after === "{}" && !rated, `${before} ${with_.length} ${after}`);
}

/** The page opens for models of ratings, of likes and of neither. */
export async function checkKinds(browser, site, models, report) {
  const faults = [];
  for (const model of models) {
    site.extra["/kinds/model.hush"] = model;
    for (const name of ["page.css", "page.js", "hushrec.js", "index.html"]) site.extra[`/kinds/${name}`] = join(PAGE, name);
    const page = await browser.newPage();
    page.on("pageerror", (error) => faults.push(error.message));
    await page.goto(`${site.address}/kinds/index.html`);
    await page.waitForSelector(READY);
    await page.fill("#search", "i");
    await page.locator("#found li").nth(1).locator("label").last().click();
    const [listed, rated] = [await page.locator("#list li").count(), await page.locator("#rated li").count()];
    if (listed !== 10 || rated !== 1) faults.push(`${listed} listed, ${rated} rated`);
    await page.close();
  }
  report("the page for other kinds of models", !faults.length, faults.join("; "));
}

/** The rules of a server hold for every list of the page, which shows none without them. */
export async function checkRules(browser, site, model, report) {
  const [faults, ids] = [[], Array.from({ length: 100 }, (_, k) => `item-${k}`)];
  const columns = { item: ids, allowed: ids.map((_, k) => k % 3 === 0), "limit 0": ids.map((_, k) => (k % 2 ? null : k % 4)) };
  const index = (await readFile(join(PAGE, "index.html"), "utf8")).replace('data-rules=""', 'data-rules="rules.json"');
  Object.assign(site.extra, { "/ruled/model.hush": model, "/ruled/": Buffer.from(index) });
  for (const name of ["page.css", "page.js", "hushrec.js"]) site.extra[`/ruled/${name}`] = join(PAGE, name);
  for (const rules of [{ attributes: columns, where: "allowed", atMost: { "limit 0": 1 } }, undefined]) {
    delete site.extra["/ruled/rules.json"];
    if (rules) site.extra["/ruled/rules.json"] = Buffer.from(JSON.stringify(rules));
    const page = await browser.newPage();
    await page.goto(`${site.address}/ruled/`);
    await page.waitForSelector(rules ? READY : "#status.failed");
    const listed = (await page.locator("#list li span").allTextContents()).map((item) => Number(item.slice(5)));
    if (rules && !(listed.length === 10 && listed.every((k) => k % 3 === 0))) faults.push(`listed: ${listed}`);
    const even = listed.filter((k) => k % 2 === 0).map((k) => k % 4);
    if (new Set(even).size < even.length || (!rules && listed.length)) faults.push(`of the same value, or without rules: ${listed}`);
    await page.close();
  }
  report("the page obeys the rules of the server", !faults.length, faults.join("; "));
}

/** With nothing but keys: search, rate, remove. */
async function checkKeyboard(page, report) {
  await page.focus("#search");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("e");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Space");
  await page.keyboard.press("ArrowRight");
  const rated = await page.locator("#rated li").allTextContents();
  await page.keyboard.press("Tab");
  const outline = await page.evaluate(() => document.activeElement.nextElementSibling && getComputedStyle(document.activeElement.nextElementSibling).outlineStyle);
  for (let k = 0; k < 5 && (await page.locator(":focus").getAttribute("aria-label")) === null; k++) await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const [left, focus] = [await page.locator("#rated li").count(), await page.locator(":focus").getAttribute("id")];
  report("by keyboard alone", rated.length === 1 && rated[0].includes("2") && outline === "solid" && !left && focus === "search", `${rated}, ${outline}, ${left} left, focus on ${focus}`);
}

async function axe(page, report, scheme) {
  const source = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(source);
  await rateSome(page);
  await page.locator("details summary").click();
  const { violations, passes } = await page.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
  await page.locator("details summary").click();
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  report(`axe-core finds no serious fault (${scheme})`, !serious.length && passes.length > 10, violations.map(({ id, impact, nodes }) => `${impact}: ${id} (${nodes[0].target})`).join("; "));
}

async function takeScreenshots(page, folder) {
  for (const [device, width, height] of [["desktop", 1000, 640], ["phone", 360, 640]]) {
    for (const colorScheme of ["light", "dark"]) {
      await page.setViewportSize({ width, height });
      await page.emulateMedia({ colorScheme });
      await page.evaluate(() => scrollTo(0, 0));
      await page.screenshot({ path: join(folder, `demo-${device}-${colorScheme}.png`) });
    }
  }
}

/** Each attempt on the locked page and, so that the test is known to see it, on one without a policy. */
export async function checkPlants(browser, site, report) {
  const elsewhere = await serve();
  const named = Object.keys(STOPPED).slice(0, 5);
  const reached = async (path) => {
    const found = new Set();
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(site.address + path);
    if (path === "/") await page.waitForSelector(READY);
    for (const other of [site, elsewhere]) {
      for (const [name, plant] of Object.entries(STOPPED)) {
        const to = `${other.address}/planted?${encodeURIComponent(name)}`;
        await page.evaluate(`Promise.race([(${plant})(${JSON.stringify(to)}), 0]).catch(() => {})`).catch(() => {});
      }
    }
    const arrived = (name) => elsewhere.asked.some(({ url }) => url.endsWith(`?${encodeURIComponent(name)}`));
    if (path !== "/") await until(() => named.every(arrived));
    await page.waitForTimeout(SETTLED);
    for (const other of [site, elsewhere]) {
      for (const { url } of other.asked) if (url.startsWith("/planted")) found.add(decodeURIComponent(url.split("?")[1]));
      other.asked.length = 0;
    }
    const counted = path === "/" ? await page.textContent("#blocked") : "";
    await context.close();
    return { found, counted };
  };
  const [locked, bare] = [await reached("/"), await reached("/bare.html")];
  report("planted fetch, image, form, WebSocket and beacon blocked", !named.some((name) => locked.found.has(name)) && named.every((name) => bare.found.has(name)), `${locked.counted} of them and others; without the policy ${named.filter((name) => bare.found.has(name)).join(", ")} arrive`);
  report("every other way out blocked", !locked.found.size, `${Object.keys(STOPPED).length} ways, ${bare.found.size} of which arrive without the policy; arrived: ${[...locked.found].join(", ") || "none"}`);
  await elsewhere.close();
}

/** What no policy stops arrives: the list of the security page. */
export async function checkHoles(browser, site, report) {
  const [elsewhere, arrived, stopped] = [await serve({ "/planted": BARE }), [], []];
  const certain = Object.keys(NOT_STOPPED).slice(0, 3);
  for (const [name, plant] of Object.entries(NOT_STOPPED)) {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`${site.address}/`);
    await page.waitForSelector(READY);
    const [connections, asked] = [elsewhere.connections(), site.asked.length];
    await page.evaluate(`Promise.race([(${plant})(${JSON.stringify(`${elsewhere.address}/planted`)}), 0]).catch(() => {})`).catch(() => {});
    const own = ({ path, headers }) => (name.includes("cookie") ? headers.cookie?.includes("planted") : path === "/service-worker.js");
    const arrives = () => elsewhere.connections() > connections || site.asked.slice(asked).some(own);
    ((await until(arrives, certain.includes(name) ? MOST_WAITED : 2 * SETTLED)) ? arrived : stopped).push(name);
    await context.close();
  }
  (await webRtcArrives(browser, site)) ? arrived.push("WebRTC") : stopped.push("WebRTC");
  report("what no policy stops is what the security page lists", certain.every((name) => arrived.includes(name)), `arrive: ${arrived.join(", ")}; stopped after all: ${stopped.join(", ") || "none"}`);
  await elsewhere.close();
}

async function webRtcArrives(browser, site) {
  const socket = createSocket("udp4");
  let packets = 0;
  socket.on("message", () => packets++);
  await new Promise((done) => socket.bind(0, "0.0.0.0", done));
  const own = Object.values(networkInterfaces()).flat().find(({ family, internal }) => family === "IPv4" && !internal);
  const page = await browser.newPage();
  await page.goto(`${site.address}/`);
  await page.waitForSelector(READY);
  await page.evaluate(async (urls) => {
    const connection = new RTCPeerConnection({ iceServers: [{ urls }] });
    connection.createDataChannel("planted");
    await connection.setLocalDescription(await connection.createOffer());
  }, `stun:${own?.address ?? "127.0.0.1"}:${socket.address().port}`).catch(() => {});
  await page.waitForTimeout(SETTLED);
  await page.close();
  socket.close();
  return packets > 0;
}

/** Kept ratings and the model are there without a network. */
export async function checkOffline(browser, site, report) {
  const context = await browser.newContext();
  const page = await context.newPage();
  await page.goto(`${site.address}/`);
  await page.waitForSelector(READY);
  await page.check("#keep");
  await rateSome(page);
  const before = await page.locator("#list li").allTextContents();
  await page.waitForFunction(async () => (await (await caches.open("hushrec")).keys()).length === 1);
  await context.setOffline(true);
  await site.close();
  await page.reload();
  await page.waitForSelector(READY, { timeout: 15000 }).catch(() => {});
  const after = await page.locator("#list li").allTextContents();
  report("the page opens offline, with the model and the kept ratings", before.length === 10 && before.join() === after.join(), `${after.length} items; ${await page.textContent("#status").catch(() => "nothing")}`);
  await context.close();
}

/** Of each file, in milliseconds: from nothing to the first list; the median list, by the clock and of its core alone. */
export async function measure(browser, files) {
  const site = await serve({ "/bare.html": BARE, ...Object.fromEntries(Object.keys(files).map((name) => [`/${name}`, files[name]])) });
  const found = {};
  for (const name of Object.keys(files)) {
    const page = await browser.newPage();
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable", { timeDomain: "threadTicks" });
    const worked = async () => (await session.send("Performance.getMetrics")).metrics.find((metric) => metric.name === "TaskDuration").value;
    await page.goto(`${site.address}/bare.html`);
    const first = await page.evaluate(async (name) => {
      const { load } = await import("/hushrec.js");
      const ratings = Array.from({ length: 20 }, (_, k) => [`item-${97 * k}`, 1 + (k % 5)]);
      const began = performance.now();
      const model = await load(`/${name}`);
      model.recommend(ratings);
      window.list = () => model.recommend(ratings);
      return performance.now() - began;
    }, name);
    const [clock, core] = [[], []];
    for (let k = 0; k < 15; k++) {
      const before = await worked();
      clock.push(await page.evaluate(() => {
        const began = performance.now();
        window.list();
        return performance.now() - began;
      }));
      core.push(1000 * ((await worked()) - before));
    }
    const median = (times) => times.sort((a, b) => a - b)[7];
    found[name] = { first, median: median(clock), core: median(core) };
    await page.close();
  }
  await site.close();
  return found;
}
