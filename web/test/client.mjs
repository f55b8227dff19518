// The client by itself, in Node: damaged and forged files, explanations, lists, and what is fetched.
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { random, randomModel, signed, takenApart } from "./forge.mjs";

const NUMBERS = ["0", "-1", "1", "3", "64", "4096", "9007199254740993", "18446744073709551616", "1e99", "NaN", "null", "[]", '"7"'];

/** A file with one changed, missing or added piece. */
export function damagedFile(good, draw, kind) {
  const bytes = Array.from(good);
  const where = Math.floor(draw() * bytes.length);
  const some = 1 + Math.floor(draw() * 99);
  if (kind === 0) bytes[where] ^= 1 + Math.floor(draw() * 255);
  else if (kind === 1) bytes.length = where;
  else if (kind === 2) bytes.splice(where, some);
  else bytes.splice(where, 0, ...Array.from({ length: some }, () => Math.floor(draw() * 256)));
  return Uint8Array.from(bytes);
}

/** A file whose header somebody changed, and whose digest of the header is right again. */
function forgedFile({ header, payload }, draw, kind) {
  let text = header;
  if (kind) {
    const found = [...header.matchAll(/(?<![0-9a-f])\d+(?![0-9a-f])/g)];
    const { index, 0: number } = found[Math.floor(draw() * found.length)];
    text = header.slice(0, index) + NUMBERS[Math.floor(draw() * NUMBERS.length)] + header.slice(index + number.length);
  } else {
    const where = Math.floor(draw() * header.length);
    text = header.slice(0, where) + String.fromCharCode(32 + Math.floor(draw() * 95)) + header.slice(where + 1);
  }
  return new Uint8Array(signed(text, [payload]));
}

/** How many were refused, what was loaded or refused otherwise, and the most memory a file took, over its size. */
async function refusals({ Model, ModelFileError }, files) {
  const found = { refused: 0, loaded: [], otherwise: [], memory: 0 };
  for (const bytes of files) {
    const before = process.memoryUsage().arrayBuffers;
    try {
      found.loaded.push(await Model.read(bytes));
    } catch (error) {
      const plain = error instanceof ModelFileError && !error.message.includes("\n") && error.message.length < 400;
      if (plain) found.refused++;
      else found.otherwise.push(String(error));
    }
    found.memory = Math.max(found.memory, (process.memoryUsage().arrayBuffers - before) / (bytes.length + (1 << 16)));
  }
  return found;
}

export async function checkClient(hushrec, vectors, report) {
  const { Model } = hushrec;
  const named = (name) => Buffer.from(vectors.models.find((each) => each.name === name).file, "base64");
  const [good, draw] = [named("both"), random(1)];
  const damaged = Array.from({ length: 1000 }, (_, number) => damagedFile(good, draw, number % 4));
  let found = await refusals(hushrec, damaged);
  report("1,000 damaged files refused in Node", found.refused === 1000, `${found.refused} refused, memory ${found.memory.toFixed(1)} of a file`);
  const parts = takenApart(good);
  found = await refusals(hushrec, Array.from({ length: 1000 }, (_, number) => forgedFile(parts, draw, number % 2)));
  const same = found.loaded.every((model) => model.recommend([], { n: 5 }).every(({ score }) => Number.isFinite(score)));
  const bounded = found.memory < 4 && !found.otherwise.length && same;
  report("1,000 forged files refused or whole", bounded, `${found.refused} refused, ${found.loaded.length} still whole, memory ${found.memory.toFixed(1)} of a file ${found.otherwise.slice(0, 3)}`);
  found = await refusals(hushrec, liars(parts));
  report("overlaps, holes, names and ids twice, numbers of no training, files that are none", found.refused === 11, `${found.refused} refused ${found.otherwise}`);
  const odd = oddArrays();
  found = await refusals(hushrec, odd.files);
  report("arrays of pairs, words and histories that are missing or odd", found.refused === odd.files.length - 1 && found.loaded.length === 1, `${found.refused} of ${odd.files.length - 1} refused ${found.otherwise}`);
  const [scores] = [found.loaded[0].predict([["item-0", 5], ["item-2", 5]], odd.ids)];
  report("pairs, words and a prior add up as docs/reference/fold-in.md says", scores.every((score, k) => Math.abs(score - odd.expected[k]) < 1e-6), `${scores}`);
  await checkExplanations(hushrec, vectors, report);
  await checkLists(await Model.read(good), hushrec, report);
  checkSimilar(await Model.read(named("als")), hushrec, report);
  await checkLimits(hushrec, report);
  await checkOrder(hushrec, report);
}

/** Files whose digests are right and whose headers lie. */
function liars({ header, payload }) {
  const lying = (change, bytes = payload) => {
    const { __metadata__: stored, ...places } = JSON.parse(header);
    const digests = JSON.parse(stored.digests);
    change(places);
    for (const [name, { data_offsets: [begin, end] }] of Object.entries(places)) digests[name] = createHash("sha256").update(bytes.subarray(begin, end)).digest("hex");
    return new Uint8Array(signed({ __metadata__: { ...stored, digests: JSON.stringify(digests) }, ...places }, [bytes]));
  };
  const bias = "serve/item_bias";
  return [
    lying((places) => (places[bias].data_offsets[0] -= 64)), // shares bytes with the one before
    lying((places) => (places[bias].shape = [places[bias].shape[0] - 1])), // less than its bytes
    lying((places) => delete places[bias]), // a hole
    lying(() => {}, Buffer.concat([payload, Buffer.alloc(64)])), // bytes that belong to nothing
    new Uint8Array(signed(header.replace('"serve/center":', `"${bias}":{"dtype":"F64","shape":[0],"data_offsets":[0,0]},"serve/center":`), [payload])),
    new Uint8Array(randomModel(2, 1, false, { ids: ["12", "12.0"] })),
    new Uint8Array(randomModel(2, 1, false, { ids: ["a", "a"] })),
    new Uint8Array(randomModel(2, 1, false, { arrays: { "serve/item_bias": Float64Array.of(0, NaN) } })),
    new Uint8Array(randomModel(2, 1, true, { arrays: { "serve/item_factors_scale": Float32Array.of(Infinity, 1) } })),
    new Uint8Array(7),
    new Uint8Array(4096),
  ];
}

/** A model of three items whose parts all count, the same with one array changed each, and what a user of items 0 and 2 gets. */
function oddArrays() {
  const good = {
    "serve/item_bias": Float64Array.of(0.5, 0.25, 0),
    "serve/item_factors": [Float32Array.of(1, 2, 4), [3, 1]],
    "serve/center": [Float64Array.of(0), []],
    "serve/history_weight": Float64Array.of(1, 1, 2),
    "serve/history_popularity": Float64Array.of(0.5, 0.25, 0.25),
    "serve/history_prior": [Float64Array.of(2), []],
    "serve/pair_items": Int32Array.of(0, 1),
    "serve/pair_weights": [Float32Array.of(0, 3, 5, 0), [2, 2]],
    "serve/neighbours": [Int32Array.of(1, 2, 0), [3, 1]],
    "serve/similarity": [Float32Array.of(0.25, 0, 1), [3, 1]],
    "serve/word_weight": [Float64Array.of(2), []],
  };
  const changes = {
    "serve/history_weight": [undefined, Float64Array.of(1, -1, 2), Float64Array.of(1, 1), Int32Array.of(1, 1, 2)],
    "serve/history_popularity": [Float64Array.of(1, -1, 2), [Float64Array.of(1), []]],
    "serve/history_prior": [undefined, [Float64Array.of(-1), []], Float64Array.of(2)],
    "serve/pair_items": [undefined, Int32Array.of(1, 0), Int32Array.of(0, 3), Int32Array.of(-1, 1), Float32Array.of(0, 1), Int32Array.of(0)],
    "serve/pair_weights": [undefined, [Float32Array.of(0, 3, 5, 0), [4, 1]], [Int8Array.of(0, 3, 5, 0), [2, 2]]],
    "serve/neighbours": [undefined, [Int32Array.of(1, 2, 3), [3, 1]], [Int32Array.of(1, -1, 0), [3, 1]], Int32Array.of(1, 2, 0), [Float32Array.of(1, 2, 0), [3, 1]]],
    "serve/similarity": [undefined, [Float32Array.of(0.25, 0, 1.5), [3, 1]], [Float32Array.of(0.25, 0, -0.5), [3, 1]], [new Float32Array(6), [3, 2]]],
    "serve/word_weight": [undefined, Float64Array.of(2)],
  };
  const ids = ["item-0", "item-1", "item-2"];
  const file = (arrays) => new Uint8Array(randomModel(3, 1, false, { model: "private-eigenrec", scores: "likes", ids, arrays }));
  const files = [file(good)];
  for (const [name, values] of Object.entries(changes)) for (const value of values) files.push(file({ ...good, [name]: value }));
  const taste = (1 * 1 + 2 * 4) / ((0.5 * 1 + 0.25 * 2) * (1 + 2 / 2)); // two likes, of 1 and 2
  const norm = Math.SQRT2;
  const expected = [0.5 + taste + 2 / norm, 0.25 + 2 * taste + 3 / norm + (2 * 0.125) / norm, 4 * taste];
  return { files, ids, expected };
}

/** The best of many items against all of them sorted, some recommended before the others. */
async function checkOrder({ Model }, report) {
  const [faults, supported] = [[], Uint8Array.from({ length: 3000 }, (_, k) => (k % 7 ? 1 : 0))];
  for (const some of [supported, supported.map((one) => 1 - one)]) {
    const model = await Model.read(randomModel(3000, 4, true, { scores: "log-odds", arrays: { "serve/supported": some } }));
    const ids = Array.from({ length: 3000 }, (_, k) => model.items.at(k));
    const ratings = [[ids[1], 5], [ids[2], 2]];
    const scores = model.predict(ratings, ids);
    const sorted = [...ids.keys()].filter((k) => k !== 1 && k !== 2).sort((a, b) => some[b] - some[a] || scores[b] - scores[a] || a - b);
    for (const n of [1, 10, 500, 2998]) {
      const found = model.recommend(ratings, { n }).map(({ item }) => model.items.indexOf(item));
      if (found.join() !== sorted.slice(0, n).join()) faults.push(`the best ${n}`);
    }
  }
  report("lists of 3,000 items are the first of all in order", !faults.length, faults.join("; "));
}

/** What a user's items add up to, and that each is what the score follows their rating by. */
async function checkExplanations({ Model }, vectors, report) {
  const [faults, shown] = [[], ["private-als", "item-bias", "als", "dpals", "dpals of likes", "private-als of one byte", "both", "private-eigenrec of pairs", "one-bit-user"]];
  for (const { name, file, histories } of vectors.models) {
    if (!shown.includes(name)) continue;
    const model = await Model.read(Buffer.from(file, "base64"));
    const { ratings } = histories.some;
    for (const item of [0, 7, 29].map((k) => model.items.at(k))) {
      const { score, base, because } = model.explain(ratings, item);
      const nobody = model.explain([], item).score;
      const close = name === "one-bit-user" ? 0.1 : 1e-9; // its regression stops after some steps
      if (Math.abs(base - nobody) > close) faults.push(`${name}: ${base} without her items, not ${nobody}`);
      if (!["private-als", "item-bias", "als", "private-als of one byte"].includes(name)) continue;
      const [first] = because;
      const moved = ratings.map(([id, r]) => [id, String(id) === first.item ? r - 0.5 : r]);
      const other = model.explain(moved.map(([id, r]) => [id, Math.max(1, r)]), item);
      const again = other.because.find((each) => each.item === first.item);
      if (Math.abs(other.score - score - (again.moved - first.moved)) > 1e-6) faults.push(`${name}: ${first.item} moves ${item} otherwise`);
    }
  }
  report("explanations add up to the scores, and follow the ratings", !faults.length, faults.slice(0, 3).join("; "));
}

/** Similar items within rules, against all of them in order. */
function checkSimilar(model, { Attributes }, report) {
  const all = Array.from({ length: model.items.length }, (_, at) => model.items.at(at));
  const odd = new Map(all.map((item, at) => [item, at % 2]));
  const attributes = new Attributes({ item: all, odd: [...odd.values()] }, model.items);
  const ids = (...asked) => model.similarItems(all[0], ...asked).map(({ item }) => item);
  const wanted = ids(1000).filter((item) => odd.get(item));
  const same = wanted.length > 5 && wanted.join() === ids(1000, { attributes, where: "odd" }).join();
  const few = ids(9, { attributes, atMost: { odd: 1 } });
  const limited = few.length === 2 && few[0] === ids(1)[0] && few.map((item) => odd.get(item)).sort().join() === "0,1";
  report("similar items obey rules", same && limited, few.join());
}

async function checkLists(model, { InputError }, report) {
  const [all, faults] = [model.recommend([], { n: 1000 }).map(({ item }) => item), []];
  const expect = (what, holds) => holds || faults.push(what);
  const mine = { [all[0]]: 5, [all[1]]: 1 };
  expect("rated items are left out", !model.recommend(mine, { n: 1000 }).some(({ item }) => item in mine));
  expect("exclude: []", model.recommend(mine, { n: 1000, exclude: [] }).length === all.length);
  expect("exclude", !model.recommend([], { n: 1000, exclude: [all[3]] }).some(({ item }) => item === all[3]));
  expect("only", model.recommend([], { only: [all[5], all[9]] }).map(({ item }) => item).join() === [all[5], all[9]].join());
  expect("a Map is a mapping too", model.recommend(new Map(Object.entries(mine))).join() === model.recommend(mine).join());
  expect("search", model.items.search(all[0].toUpperCase(), 3).includes(all[0]) && !model.items.search("").length);
  for (const wrong of [() => model.recommend(mine, { n: 0 }), () => model.recommend("abc"), () => model.recommend([all[0]]), () => model.predict([], ["nowhere"]), () => model.predict([], all[0]), () => model.similarItems("nowhere")]) {
    try {
      wrong();
      faults.push(`not refused: ${wrong}`);
    } catch (error) {
      expect(`${error}`, error instanceof InputError && !error.message.includes("\n"));
    }
  }
  expect("the statement is there", model.privacy.private === true && model.privacy.unit === "user");
  expect("unknown ids are skipped", model.recommend([], { n: 1, only: ["no such item", all[5]] }).map(({ item }) => item).join() === all[5]);
  expect("only unknown ids", !model.recommend([], { only: ["no such item"] }).length);
  report("lists: exclude, only, n, mappings, search; wrong inputs refused in one sentence", !faults.length, faults.join("; "));
}

/** Rules that would be much work are refused before any of it. */
async function checkLimits({ Attributes, InputError, Model }, report) {
  const [model, faults, count] = [await Model.read(randomModel(100_000, 1, false)), [], 100_000];
  const ids = Array.from({ length: count }, (_, k) => model.items.at(k));
  const attributes = new Attributes({ item: ids, price: ids.map((_, k) => k) }, model.items);
  const entries = (number, each, value) => Object.fromEntries(Array.from({ length: number }, (_, k) => [each(k), value]));
  const long = Array.from({ length: 100 }, () => "price<price").join(" or ");
  for (const [rules, words] of [
    [{ boost: entries(21, (k) => `price < ${k}`, 2) }, "at most 20"],
    [{ atMost: entries(21, (k) => `price${k}`, 2) }, "at most 20"],
    [{ boost: entries(20, (k) => `${long} or price < ${k}`, 2) }, "too much work"],
    [{ boost: entries(20, (k) => `price in (${"1,".repeat(900)}${k})`, 2) }, ""],
  ]) {
    const start = Date.now();
    try {
      model.recommend([], { attributes, ...rules });
      if (words) faults.push(`not refused: ${words}`);
    } catch (error) {
      if (!words || !(error instanceof InputError && error.message.includes(words))) faults.push(`${error}`);
    }
    if (Date.now() - start > 5000) faults.push(`${words}: ${Date.now() - start} ms`);
  }
  report("rules of much work are refused beforehand", !faults.length, faults.join("; "));
}

/** Loading from an address: one request for the whole file, whoever is served afterwards. */
export async function checkLoading({ load }, vectors, serve, report) {
  const file = Buffer.from(vectors.models.find((each) => each.name === "both").file, "base64");
  const site = await serve({ "/model.hush": file, "/damaged.hush": file.subarray(0, -1) });
  const faults = [];
  const model = await load(`${site.address}/model.hush`);
  model.recommend([[model.items.at(3), 5]]);
  const pinned = await load(`${site.address}/model.hush`, { digest: model.digest });
  if (pinned.digest !== model.digest) faults.push("another model");
  for (const [path, options] of [["/damaged.hush"], ["/nowhere.hush"], ["/model.hush", { digest: "0".repeat(64) }]]) {
    const refusal = await load(site.address + path, options).catch((error) => error);
    if (refusal.name !== "ModelFileError") faults.push(`${path} is not refused: ${refusal}`);
  }
  const whole = site.asked.every(({ method, headers }) => method === "GET" && !headers.range);
  if (!whole || site.asked.length !== 5) faults.push("not one whole file a load");
  await site.close();
  report("a model is fetched whole; damaged, missing and other ones are refused", !faults.length, faults.join("; "));
}

export const readVectors = async (path) => JSON.parse(await readFile(path, "utf8"));
export { randomModel };
