// Model files put together as docs/reference/format.md says, by nothing of the client.
import { createHash } from "node:crypto";

const sha256 = (bytes) => createHash("sha256").update(bytes).digest();
const DTYPES = new Map([[Uint8Array, "U8"], [Int8Array, "I8"], [Uint32Array, "U32"], [Int32Array, "I32"], [Float32Array, "F32"], [Float64Array, "F64"]]);

/** The bytes of a model file; `arrays` maps names to typed arrays or [typed array, shape]. */
export function encode(header, arrays) {
  const [places, digests, payload] = [{}, {}, []];
  let end = 0;
  const add = (name, dtype, shape, bytes) => {
    places[name] = { dtype, shape, data_offsets: [end, end + bytes.length] };
    digests[name] = sha256(bytes).toString("hex");
    payload.push(bytes);
    end += bytes.length;
    if (end % 64) add(`padding/${payload.length}`, "U8", [64 - (end % 64)], Buffer.alloc(64 - (end % 64)));
  };
  for (const [name, given] of Object.entries(arrays).filter(([, given]) => given)) {
    const [values, shape] = Array.isArray(given) ? given : [given, [given.length]];
    add(name, DTYPES.get(values.constructor), shape, Buffer.from(values.buffer, values.byteOffset, values.byteLength));
  }
  places.digest = { dtype: "U8", shape: [32], data_offsets: [end, end + 32] };
  const texts = Object.entries({ ...header, digests }).map(([key, value]) => [key, JSON.stringify(value)]);
  return signed({ __metadata__: { format: "hushrec", version: "1", ...Object.fromEntries(texts) }, ...places }, payload);
}

/** A header before a payload, with the digest of the header. */
export function signed(header, payload) {
  let text = typeof header === "string" ? header : JSON.stringify(header);
  text += " ".repeat((64 - ((8 + Buffer.byteLength(text)) % 64)) % 64);
  const head = Buffer.alloc(8 + Buffer.byteLength(text));
  head.writeBigUInt64LE(BigInt(head.length - 8));
  head.write(text, 8);
  return Buffer.concat([head, ...payload, sha256(head)]);
}

/** Header text and payload of a model file. */
export function takenApart(bytes) {
  const start = 8 + Number(bytes.readBigUInt64LE());
  return { header: bytes.toString("utf8", 8, start).trimEnd(), payload: bytes.subarray(start, -32) };
}

/** A generator of numbers from 0 to 1 that a seed reproduces (mulberry32). */
export function random(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** A model with random factors: so many items, a rank, in bytes or floats; other arrays and words. */
export function randomModel(nItems, rank, int8, { privacy = { private: true }, scores = "ratings", ids, arrays = {}, model = "private-als" } = {}) {
  const draw = random(nItems);
  ids ??= Array.from({ length: nItems }, (_, k) => `item-${k}`);
  const text = Buffer.from(ids.join(""));
  const offsets = new Uint32Array(nItems + 1);
  ids.forEach((id, k) => (offsets[k + 1] = offsets[k] + id.length));
  const [floats, octets, scale] = [new Float32Array(int8 ? 0 : nItems * rank), new Int8Array(int8 ? nItems * rank : 0), new Float32Array(nItems)];
  if (int8) scale.forEach((_, k) => (scale[k] = Math.fround((1 + Math.floor(draw() * 64)) / 2 ** 14)));
  for (let k = 0; k < nItems * rank; k++) {
    if (int8) octets[k] = Math.floor(draw() * 255) - 127;
    else floats[k] = draw() - 0.5;
  }
  const factors = int8 ? { "serve/item_factors_int8": [octets, [nItems, rank]], "serve/item_factors_scale": scale } : { "serve/item_factors": [floats, [nItems, rank]] };
  const header = {
    sections: { serve: { model, settings: {}, scores } },
    domain: { rating_range: [1, 5], max_ratings_per_user: 10000, declared: true },
    privacy,
  };
  return encode(header, {
    "serve/center": [Float64Array.of(3.5), []],
    "serve/regularization": [Float64Array.of(1), []],
    "serve/bias_regularization": [Float64Array.of(3), []],
    "serve/item_bias": Float64Array.from({ length: nItems }, () => draw() - 0.5),
    ...factors,
    ...arrays,
    "catalogue/text": new Uint8Array(text),
    "catalogue/offsets": offsets,
    "catalogue/kinds": new Uint8Array(nItems),
  });
}
