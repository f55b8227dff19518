/** One user's ratings as a row of the model. */
import type { Catalogue, Id } from "./catalogue.js";
import { InputError } from "./errors.js";
import type { Row } from "./foldin.js";

/** A number that grows, or a date in ISO 8601; anything else is unknown. */
export type Time = number | string | null;

/** A rating; null is a purchase without one, where lists come from likes. */
export type Rating = number | null;

/** An item, its rating and, optionally, its time. */
export type Rated = readonly [Id, Rating] | readonly [Id, Rating, Time];

/** Ids and ratings: a mapping, pairs of both, or, where a model is of likes, ids of liked items. */
export type Ratings = Iterable<Rated> | Iterable<Id> | Readonly<Record<string, Rating>>;

export interface Domain {
  low: number;
  high: number;
  /** Whether every rating is a like, with any value. */
  likes: boolean;
  mostRatings: number;
}

export interface Refused {
  item: Id;
  rating: Rating;
  why: string;
}

export function pairsOf(ratings: Ratings, { high }: Domain, ofLikes: boolean): Rated[] {
  if (typeof ratings === "string" || typeof ratings !== "object" || ratings === null) {
    throw new InputError("Ratings must be a mapping from item to rating, or pairs of both.");
  }
  const entries: (Id | Rated)[] =
    Symbol.iterator in ratings ? [...(ratings as Iterable<Id>)] : Object.entries(ratings as Record<string, Rating>);
  return entries.map((entry) => {
    if (Array.isArray(entry) && (entry.length === 2 || entry.length === 3)) return entry as unknown as Rated;
    if (ofLikes && !Array.isArray(entry)) return [entry as Id, high] as const;
    throw new InputError(`Ratings must be pairs of item and rating; '${String(entry)}' is none.`);
  });
}

/** The numbers of latest ratings from which a list of what comes next is computed, next to all of them. */
const SPANS = [1, 2, 4, 8, 16, 32];

/** The time of an entry as Python reads it, in whole numbers; -Infinity if there is none. */
function timeOf(time?: Time): number {
  const zoned = typeof time === "string" && !/(Z|[+-]\d\d:?\d\d)$/i.test(time.trim()) && /[T ]/.test(time.trim());
  const number = typeof time === "string" ? Number(time.trim() || NaN) : time;
  const value = typeof time === "string" && Number.isNaN(number) ? Date.parse(zoned ? `${time.trim()}Z` : time) / 1000 : number;
  return typeof value === "number" && Math.abs(value) <= 2 ** 62 ? Math.floor(value) : -Infinity;
}

/** Ratings with their times, the oldest first; if none has a time, their places are the times. */
function inOrder(pairs: Rated[]): [Rated, number][] {
  const timed = pairs.some((pair) => pair.length === 3);
  const keyed = pairs.map((pair, place): [Rated, number] => [pair, timed ? timeOf(pair[2]) : place]);
  return keyed.sort(([, a], [, b]) => (a === b ? 0 : a < b ? -1 : 1));
}

/** The row of these ratings, NaN for purchases, and the refused ones. Of several ratings of an item the last counts. */
export function rowOf(
  ratings: Rated[],
  catalogue: Catalogue,
  domain: Domain,
  purchases: boolean,
): { row: Row; spans: Row[]; refused: Refused[] } {
  const [low, high] = [Math.fround(domain.low), Math.fround(domain.high)];
  const lowest = low >= domain.low ? low : neighbour(low, 1);
  const highest = high <= domain.high ? high : neighbour(high, -1);
  const [kept, refused] = [new Map<number, { value: number; time: number }>(), [] as Refused[]];
  for (const [[item, rating], time] of inOrder(ratings)) {
    const [at, value] = [catalogue.indexOf(item), domain.likes ? 1 : Math.fround(rating!)];
    const before = kept.get(at);
    if (at < 0) {
      const why = `is not in the model's catalogue of ${catalogue.length.toLocaleString("en-US")} items`;
      refused.push({ item, rating, why });
    } else if (domain.likes && typeof rating === "number" && rating <= 0) {
      continue; // no like
    } else if (purchases && rating === null && !domain.likes) {
      kept.delete(at);
      kept.set(at, { value: before?.value ?? NaN, time }); // a rating counts before a purchase without one
    } else if ((domain.likes || typeof rating === "number") && value >= low && value <= high) {
      kept.delete(at); // the last one of an item has its place, too
      kept.set(at, { value: Math.min(Math.max(value, lowest), highest), time });
    } else {
      refused.push({ item, rating, why: `is rated ${rating}, not from ${domain.low} to ${domain.high}` });
    }
  }
  const order = [...kept.keys()];
  const chosen = new Set(sampled([...order], domain.mostRatings));
  const of = (some: number[]) => {
    const items = [...some].sort((a, b) => a - b);
    return { items, values: items.map((item) => kept.get(item)!.value) };
  };
  const counted = order.filter((item) => chosen.has(item));
  const spans = SPANS.map((span) => {
    const from = kept.get(counted.at(-span) ?? -1)?.time ?? -Infinity; // ratings of one time count together
    return of(counted.filter((item) => kept.get(item)!.time >= from));
  });
  return { row: of(counted), spans, refused };
}

/** The float32 next to a number, up or down. */
function neighbour(value: number, direction: number): number {
  const [float, bits] = [new Float32Array([value]), new Int32Array(1)];
  bits.set(new Int32Array(float.buffer));
  bits[0]! += value > 0 ? direction : -direction;
  return new Float32Array(bits.buffer)[0]!;
}

/** The items of smallest hash, which Python keeps of a row beyond the cap. */
function sampled(items: number[], most: number): number[] {
  if (items.length <= most) return items;
  const keys = new Map(items.map((item) => [item, mixed(0x61fe3b7caf7f47a9n + 0x9e3779b97f4a7c15n * BigInt(item + 1))]));
  return items.sort((a, b) => (keys.get(a)! < keys.get(b)! ? -1 : 1)).slice(0, most);
}

/** The finaliser of SplitMix64 (Steele, Lea and Flood 2014). */
function mixed(value: bigint): bigint {
  value = BigInt.asUintN(64, value);
  value = BigInt.asUintN(64, (value ^ (value >> 30n)) * 0xbf58476d1ce4e5b9n);
  value = BigInt.asUintN(64, (value ^ (value >> 27n)) * 0x94d049bb133111ebn);
  return value ^ (value >> 31n);
}
