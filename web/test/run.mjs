// `make test-web`: the client in Node and in Chromium, and the demo page; a line a check, 1 where one fails.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";
import * as hushrec from "../../hushrec/web/hushrec.js";
import * as browserChecks from "./browser.mjs";
import { checkClient, checkLoading, damagedFile, readVectors } from "./client.mjs";
import { random, randomModel } from "./forge.mjs";
import { parity } from "./parity.mjs";
import { serve } from "./site.mjs";

const ROOT = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const VECTORS = join(ROOT, "tests", "vectors", "vectors.json");
const SCREENSHOTS = process.argv.includes("--screenshots") ? join(ROOT, "docs", "figures") : undefined;
/** Milliseconds: median of a list by the number of items, and from loading to the first list at the last. */
const TARGETS = { 1e4: 5, 1e5: 15, 1e6: 100 };
const [FIRST, LOADED] = [1500, "1000000-bytes.hush"];
const RANK = 32;
/** Where other work may share the cores, only what takes so many times the target fails. */
const ROOM = Number(process.env.ROOM ?? 1);
const ATTEMPTS = 3;

const modelOf = (name) => Buffer.from(vectors.models.find((each) => each.name === name).file, "base64");

let [failed, busy] = [0, 0];
const began = Date.now();

function report(name, ok, detail = "") {
  if (!ok) failed++;
  console.log(`${ok ? "PASS" : "FAIL"}  ${name}${detail.trim() ? `: ${detail.trim()}` : ""}`);
}

const vectors = await readVectors(VECTORS);
const { faults, largest, checked } = await parity(hushrec, vectors);
report("parity with Python in Node", !faults.length && checked > 0, `${checked} histories, largest difference ${largest.toExponential(1)}; ${faults.slice(0, 3).join("; ")}`);
await checkClient(hushrec, vectors, report);
await checkLoading(hushrec, vectors, serve, report);

const folder = await mkdtemp(join(tmpdir(), "hushrec-web-"));
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ["--no-sandbox", "--disable-dev-shm-usage"] });
try {
  const [model, draw] = [modelOf("both"), random(2)];
  const demo = randomModel(100, 8, false, { privacy: (await hushrec.Model.read(model)).privacy });
  const site = await browserChecks.testSite(VECTORS, demo);
  await browserChecks.checkParity(browser, site, report);
  await browserChecks.checkDamaged(browser, site, Array.from({ length: 1000 }, (_, k) => damagedFile(model, draw, k % 4)), report);
  await browserChecks.checkKept(browser, site, report);
  await browserChecks.checkVisit(browser, site, report, SCREENSHOTS);
  await browserChecks.checkKinds(browser, site, ["both", "popular", "one-bit-user", "private-eigenrec of likes"].map(modelOf), report);
  await browserChecks.checkRules(browser, site, demo, report);
  await browserChecks.checkPlants(browser, site, report);
  await browserChecks.checkHoles(browser, site, report);
  await browserChecks.checkOffline(browser, site, report); // closes the site
  await checkTimes();
} finally {
  await browser.close();
  await rm(folder, { recursive: true });
}
const verdict = failed ? `${failed} checks failed` : busy ? "all other checks passed" : "all checks passed";
const short = busy ? `, ${busy} targets of time not reached where others had the cores` : "";
console.log(`${verdict}${short}, ${Math.round((Date.now() - began) / 1000)} s`);
process.exitCode = failed ? 1 : 0;

async function checkTimes() {
  const files = {};
  for (const count of Object.keys(TARGETS)) {
    for (const kind of ["bytes", "floats"]) {
      const name = `${count}-${kind}.hush`;
      files[name] = join(folder, name);
      await writeFile(files[name], randomModel(Number(count), RANK, kind === "bytes"));
    }
  }
  const best = {};
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    for (const [name, found] of Object.entries(await browserChecks.measure(browser, files))) {
      const last = (best[name] ??= found);
      for (const figure of Object.keys(found)) last[figure] = Math.min(last[figure], found[figure]);
      if (last.median <= TARGETS[name.split("-")[0]] && (name !== LOADED || last.first <= FIRST)) delete files[name];
    }
    if (!Object.keys(files).length) break;
  }
  for (const [name, { first, median, core }] of Object.entries(best)) {
    const [count, kind] = name.replace(".hush", "").split("-");
    time(`a list of ${Number(count).toLocaleString("en-US")} items x ${RANK}, ${kind}, median`, median, TARGETS[count], core);
    if (name === LOADED) time("1,000,000 items from load to the first list, digests checked", first, FIRST);
  }
}

/** By the clock; where others had the core, a list may take longer by it, and a load ROOM times as long. */
function time(name, took, target, core) {
  const figure = `${took.toFixed(1)} ms (<= ${target})${core === undefined ? "" : `, ${core.toFixed(1)} ms of its core`}`;
  const shared = core === undefined ? took <= ROOM * target : core <= ROOM * target;
  if (took <= target || !shared) return report(name, took <= target, figure);
  busy++;
  console.log(`BUSY  ${name}: ${figure}`);
}
