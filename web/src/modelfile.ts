/** Bytes of a model file (docs/reference/format.md). Arrays are views of its bytes, so no header takes more memory than the file. */
import { ModelFileError } from "./errors.js";

export type Numbers = Float64Array | Float32Array | Int32Array | Uint32Array | Int8Array | Uint8Array;

/** One array of a model file. */
export interface Stored {
  dtype: string;
  shape: number[];
  values: Numbers;
}

export interface ModelFile {
  header: Record<string, any>;
  /** By name, `section/array`. */
  arrays: Map<string, Stored>;
  /** SHA-256, hexadecimal. */
  digest: string;
}

const MARK = '{"__metadata__":{"format":"hushrec",';
const [ALIGNMENT, DIGEST_BYTES, LARGEST] = [64, 32, 1e150];
const WIDTHS: Record<string, number> = {
  U8: 1, I8: 1, U32: 4, I32: 4, U64: 8, I64: 8, F32: 4, F64: 8,
};

const utf8 = new TextDecoder("utf-8", { fatal: true });

export function damaged(why: string): never {
  throw new ModelFileError(`This model file is damaged or cut short (${why}); fetch or train it again.`);
}

export function otherVersion(why: string): never {
  throw new ModelFileError(
    `This model file was written by another version of hushrec (${why}); read it with the version that wrote it.`,
  );
}

/**
 * Read the bytes of a model file.
 *
 * @throws ModelFileError if they are no model file, are damaged, or were written by another version.
 */
export async function decode(bytes: Uint8Array): Promise<ModelFile> {
  try {
    return await whole(bytes.byteOffset % 8 ? bytes.slice() : bytes);
  } catch (error) {
    if (error instanceof ModelFileError) throw error;
    return otherVersion((error as Error).message.split("\n")[0]!);
  }
}

async function whole(bytes: Uint8Array): Promise<ModelFile> {
  const size = bytes.length;
  const view = new DataView(bytes.buffer, bytes.byteOffset, size);
  if (size < 8 + MARK.length || latin(bytes.subarray(8, 8 + MARK.length)) !== MARK) {
    throw new ModelFileError("This is not a hushrec model file; pass one that `hushrec train` wrote.");
  }
  const start = 8 + Number(view.getBigUint64(0, true));
  if (start % ALIGNMENT || start > size - DIGEST_BYTES) damaged("wrong length of the header");
  const digest = await sha256(bytes.subarray(0, start));
  if (digest !== hexadecimal(bytes.subarray(size - DIGEST_BYTES))) damaged("wrong digest");
  const text = utf8.decode(bytes.subarray(8, start));
  const { __metadata__: stored, ...places } = JSON.parse(text);
  refuseTwins(text);
  if (stored.version !== "1") otherVersion(`format version ${stored.version}`);
  const arrays = new Map<string, Stored>();
  const digests = JSON.parse(stored.digests);
  const checks: Promise<string | true>[] = [];
  let end = 0;
  for (const [name, entry] of inOrder(places)) {
    const [begin, stop] = entry.data_offsets;
    if (begin !== end || stop !== end + length(name, entry) || start + stop > size) {
      damaged(`array '${name}' is not where its entry says`);
    }
    const octets = bytes.subarray(start + begin, start + stop);
    if (name !== "digest") {
      if (begin % ALIGNMENT && !name.startsWith("padding/")) damaged(`array '${name}' is not aligned`);
      checks.push(sha256(octets).then((found) => found === digests[name] || name));
      arrays.set(name, { dtype: entry.dtype, shape: entry.shape, values: numbers(entry.dtype, octets) });
    }
    end = stop;
  }
  if (start + end !== size || places.digest?.data_offsets[1] !== end) damaged("bytes that belong to no array");
  const wrong = (await Promise.all(checks)).find((found) => found !== true);
  if (wrong) damaged(`wrong digest of array '${wrong}'`);
  for (const [name, { values }] of arrays) {
    if (!finite(values)) damaged(`array '${name}' holds numbers that no training releases`);
  }
  const header: Record<string, any> = {};
  for (const key of ["sections", "domain", "privacy"]) header[key] = JSON.parse(stored[key]);
  if (stored.judged) header.judged = JSON.parse(stored.judged);
  return { header, arrays, digest };
}

interface Entry {
  dtype: string;
  shape: number[];
  data_offsets: [number, number];
}

function inOrder(places: Record<string, Entry>): [string, Entry][] {
  return Object.entries(places).sort(
    ([, a], [, b]) => a.data_offsets[0] - b.data_offsets[0] || a.data_offsets[1] - b.data_offsets[1],
  );
}

function length(name: string, { dtype, shape }: Entry): number {
  if (!shape.every((size) => Number.isSafeInteger(size) && size >= 0)) damaged(`array '${name}' has no shape`);
  const bytes = shape.reduce((product, size) => product * size, WIDTHS[dtype] ?? NaN);
  return Number.isNaN(bytes) ? otherVersion(`array '${name}' of type ${dtype}`) : bytes;
}

function numbers(dtype: string, octets: Uint8Array): Numbers {
  const { buffer, byteOffset: at, length } = octets;
  const count = length / WIDTHS[dtype]!;
  switch (dtype) {
    case "U8": return octets;
    case "I8": return new Int8Array(buffer, at, count);
    case "U32": return new Uint32Array(buffer, at, count);
    case "I32": return new Int32Array(buffer, at, count);
    case "F32": return new Float32Array(buffer, at, count);
    case "F64": return new Float64Array(buffer, at, count);
  }
  const whole = dtype === "U64" ? new BigUint64Array(buffer, at, count) : new BigInt64Array(buffer, at, count);
  return Float64Array.from(whole as BigInt64Array, Number);
}

/** Whether no number has a square that overflows. */
function finite(values: Numbers): boolean {
  if (!(values instanceof Float32Array || values instanceof Float64Array)) return true;
  for (let at = 0; at < values.length; at++) if (!(Math.abs(values[at]!) <= LARGEST)) return false;
  return true;
}

/** Refuse JSON in which an object has a name twice. */
function refuseTwins(text: string): void {
  const objects: Set<string>[] = [];
  for (const [token, key] of text.matchAll(/("(?:[^"\\]|\\.)*")(?=\s*:)|"(?:[^"\\]|\\.)*"|[{}]/gs)) {
    if (token === "{") objects.push(new Set());
    else if (token === "}") objects.pop();
    else if (key !== undefined) {
      const [names, name] = [objects.at(-1)!, JSON.parse(key)];
      if (names.has(name)) damaged("a name occurs twice");
      names.add(name);
    }
  }
}

async function sha256(octets: Uint8Array): Promise<string> {
  const { subtle } = globalThis.crypto ?? {};
  if (!subtle) {
    throw new ModelFileError("A model is checked on pages of https or localhost only; open the page from there.");
  }
  return hexadecimal(new Uint8Array(await subtle.digest("SHA-256", octets as Uint8Array<ArrayBuffer>)));
}

export function hexadecimal(octets: Uint8Array): string {
  return Array.from(octets, (octet) => octet.toString(16).padStart(2, "0")).join("");
}

const latin = (octets: Uint8Array) => String.fromCharCode(...octets);
