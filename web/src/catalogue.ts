/** The item ids of a model (docs/reference/format.md). */
import { InputError } from "./errors.js";
import { Hashes } from "./hashes.js";
import type { ModelFile } from "./modelfile.js";

/** An item id, compared as text: 7, "7" and "7.0" are one. */
export type Id = string | number | bigint | boolean;

const LARGEST = 2 ** 53; // from here on floats skip integers
const NO_TEXT = "\ufffd"; // begins the text of what is no text
const BLANKS = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const AROUND = new RegExp(`^${BLANKS}|${BLANKS}$`, "g");
const [TEXT, INTEGER, FLOAT, BOOLEAN, UUID, BYTES, JSON_TEXT] = [0, 1, 2, 3, 4, 5, 6];

const encoder = new TextEncoder();
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The text that identifies an id; undefined if it is no id. */
export function idText(id: unknown): string | undefined {
  if (typeof id === "bigint" || typeof id === "boolean") return String(id);
  if (typeof id === "number") return Math.abs(id) < LARGEST ? decimal(id) : undefined;
  if (typeof id !== "string") return undefined;
  const text = id.replace(AROUND, "");
  if (!wellFormed(text)) return `${NO_TEXT}u${surrogateHex(text)}`;
  if (text.startsWith(NO_TEXT)) return NO_TEXT + text;
  if (/^-?(0|[1-9][0-9]*)\.0$/.test(text)) return Math.abs(+text) < LARGEST ? String(BigInt(text.slice(0, -2))) : undefined;
  return !text || /^-?[0-9](\.[0-9]*)?[eE]\+[0-9]+$/.test(text) ? undefined : text;
}

/** A number as Python writes it. */
function decimal(value: number): string {
  if (Number.isInteger(value)) return String(value || 0);
  return Math.abs(value) < 1e-4 ? value.toExponential().replace(/-(\d)$/, "-0$1") : String(value);
}

export function wellFormed(text: string): boolean {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}

/** UTF-8 in hexadecimal, with lone surrogates. */
function surrogateHex(text: string): string {
  const octets: number[] = [];
  for (const character of text) {
    const code = character.codePointAt(0)!;
    if (code >> 11 === 27) octets.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    else octets.push(...encoder.encode(character));
  }
  return hex(octets);
}

const hex = (octets: Iterable<number>) => Array.from(octets, (o) => o.toString(16).padStart(2, "0")).join("");

export class Catalogue {
  readonly length: number;
  private readonly text: Uint8Array;
  private readonly offsets: Uint32Array;
  private readonly kinds: Uint8Array;
  /** Positions of ids that are compared byte by byte. */
  private readonly plain: Hashes;
  /** Positions of all other ids, by text. */
  private readonly others = new Map<string, number>();

  /** @throws Error if the arrays are no catalogue. */
  constructor({ arrays }: ModelFile) {
    const [text, offsets, kinds] = ["text", "offsets", "kinds"].map((name) => arrays.get(`catalogue/${name}`)?.values);
    if (!(text instanceof Uint8Array && offsets instanceof Uint32Array && kinds instanceof Uint8Array)) {
      throw new Error("it has no catalogue");
    }
    this.length = kinds.length;
    if (!this.length) throw new Error("its catalogue is empty");
    [this.text, this.offsets, this.kinds] = [text, offsets, kinds];
    const fits = offsets.length === kinds.length + 1 && !offsets[0] && offsets.at(-1) === text.length;
    const [hashes, items, slow] = [new Uint32Array(this.length), new Int32Array(this.length), [] as number[]];
    let count = 0;
    for (let item = 0; item < kinds.length; item++) {
      const begin = offsets[item]!;
      const end = offsets[item + 1]!;
      if (!fits || end < begin) throw new Error("its catalogue does not fit its text");
      if (isPlain(text, begin, end, kinds[item]!)) {
        hashes[count] = hashOf(text, begin, end);
        items[count++] = item;
      } else slow.push(item);
    }
    this.plain = new Hashes(hashes.subarray(0, count), items.subarray(0, count));
    const twin = this.plain.twin((one, other) => this.at(one) === this.at(other));
    if (twin >= 0) throw new Error(`item '${this.at(twin)}' occurs twice`);
    for (const item of slow) {
      const { id } = this.read(item);
      if (this.find(id) >= 0) throw new Error(`item '${id}' occurs twice`);
      this.others.set(id, item);
    }
  }

  at(item: number): string {
    if (!(item >= 0 && item < this.length)) throw new InputError(`There is no item number ${item}.`);
    return this.read(item).shown;
  }

  /** An id as it is shown, and as it is compared. */
  private read(item: number): { shown: string; id: string } {
    const octets = this.text.subarray(this.offsets[item], this.offsets[item + 1]);
    const kind = this.kinds[item]!;
    let text: string;
    try {
      text = utf8.decode(octets);
    } catch (error) {
      if (kind !== BYTES) throw error;
      const [begin, end] = [octets.findIndex((o) => !isBlank(o)), octets.findLastIndex((o) => !isBlank(o))];
      const id = `${NO_TEXT}x${hex(octets.subarray(begin, end + 1))}`;
      return { shown: id, id };
    }
    const value: unknown = kind === FLOAT ? Number(text) : kind === JSON_TEXT ? JSON.parse(text) : text;
    const id = idText(value);
    const pattern = PATTERNS[kind];
    if (id === undefined || kind > JSON_TEXT || (pattern && !pattern.test(text))) throw new Error(`'${text}' is no id`);
    return { shown: id.startsWith(NO_TEXT) ? String(value) : id, id };
  }

  /** The position of an id; -1 if it is not in the catalogue. */
  indexOf(id: Id): number {
    const text = idText(id);
    const found = text === undefined ? -1 : this.find(text);
    return found < 0 && String(id).startsWith(NO_TEXT) ? this.find(String(id)) : found; // bytes, as they are shown
  }

  has(id: Id): boolean {
    return this.indexOf(id) >= 0;
  }

  /** The first n ids that contain a text; the case of a to z does not count. */
  search(text: string, n = 10): string[] {
    const found: string[] = [];
    const wanted = encoder.encode(text).map(lower);
    const { text: octets, offsets } = this;
    if (!wanted.length) return found;
    for (let at = 0, item = 0; at <= octets.length - wanted.length && found.length < n; at++) {
      let k = 0;
      while (k < wanted.length && lower(octets[at + k]!) === wanted[k]) k++;
      if (k < wanted.length) continue;
      while (offsets[item + 1]! <= at) item++;
      if (at + k > offsets[item + 1]!) continue;
      found.push(this.at(item));
      at = offsets[item + 1]! - 1;
    }
    return found;
  }

  private find(text: string): number {
    const octets = encoder.encode(text);
    const found = this.plain.find(hashOf(octets, 0, octets.length), (item) => {
      const begin = this.offsets[item]!;
      if (this.offsets[item + 1]! - begin !== octets.length) return false;
      return octets.every((octet, k) => octet === this.text[begin + k]);
    });
    return found >= 0 ? found : this.others.get(text) ?? -1;
  }
}

/** FNV-1a of some bytes, mixed. */
function hashOf(octets: Uint8Array, begin: number, end: number): number {
  let hash = 0x811c9dc5;
  for (let k = begin; k < end; k++) hash = Math.imul(hash ^ octets[k]!, 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return (hash ^ (hash >>> 13)) >>> 0;
}

/** Whether an id's bytes are its text: printable ASCII, and no number with several spellings. */
function isPlain(text: Uint8Array, begin: number, end: number, kind: number): boolean {
  if (begin === end || text[begin] === 32 || text[end - 1] === 32) return false;
  if (kind === UUID) return PATTERNS[UUID]!.test(String.fromCharCode(...text.subarray(begin, end)));
  if (kind > INTEGER) return false;
  const number = text[begin]! < 58 && (text[begin]! > 47 || text[begin] === 45);
  for (let k = begin; k < end; k++) {
    const octet = text[k]!;
    if (octet < 32 || octet > 126 || (number && (octet === 43 || octet === 46))) return false;
    if (kind === INTEGER && (octet < 48 || octet > 57 || (octet === 48 && k === begin))) return false;
  }
  return true;
}

const PATTERNS: (RegExp | undefined)[] = [];
PATTERNS[TEXT] = undefined;
PATTERNS[INTEGER] = /^(0|-?[1-9][0-9]*)$/;
PATTERNS[FLOAT] = /^-?[0-9.e+-]+$/;
PATTERNS[BOOLEAN] = /^(true|false)$/;
PATTERNS[UUID] = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const isBlank = (octet: number) => octet === 32 || (octet > 8 && octet < 14);
const lower = (octet: number) => (octet > 64 && octet < 91 ? octet + 32 : octet);
