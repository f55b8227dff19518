/** The arrays and settings of one model of a file. */
import { InputError } from "./errors.js";
import { dot } from "./ridge.js";
import type { ModelFile, Numbers, Stored } from "./modelfile.js";

export type ScoreKind = "ratings" | "likes" | "log-odds";

const SERVED = ["private-als", "item-bias", "popular", "private-eigenrec", "one-bit-user", "als", "dpals", "ease"];

/** The normal equations of so many take 32 MB. */
const MOST_FACTORS = 2000;

/** Power of a cosine in the score of words. */
const COSINE_POWER = 1.5;

/** A part of a list's score: its name, and its number of columns among the item factors. */
export type Part = [name: string, weight: number, columns: number];

/** Items that recommend others; `of` calls `add` with each other item, and how much one of the user's items adds to it. */
export interface Recommending {
  part: string;
  of(item: number, add: (other: number, score: number) => void): void;
}

export class Section {
  readonly model: string;
  readonly settings: Record<string, any>;
  readonly scores: ScoreKind;
  readonly nItems: number;
  readonly rank: number;
  readonly center: number;
  readonly itemBias: Numbers;
  readonly factors: Numbers;
  /** A scale for each row of factors of one byte. */
  readonly scale: Numbers | undefined;
  readonly supported: Numbers | undefined;
  /** The number of stored rows of the factors, and their items; all if undefined. */
  readonly rows: number;
  readonly positions: Numbers | undefined;
  /** Parts that add to the scores of other items; none in most models. */
  readonly recommending: Recommending[];
  /** Parts of the lists that a table of articles describes. */
  readonly parts: Part[];

  /**
   * @throws InputError if the model is none that a device can serve.
   * @throws Error if the arrays do not fit.
   */
  constructor(
    private readonly file: ModelFile,
    private readonly name: string,
    nItems: number,
  ) {
    ({ model: this.model, settings: this.settings, scores: this.scores, parts: this.parts = [] } = file.header.sections[name]);
    if (!SERVED.includes(this.model)) {
      throw new InputError(`A device cannot serve '${this.model}'; train for both, for ratings or for lists.`);
    }
    this.nItems = nItems;
    this.positions = this.ascending("item_factors_rows");
    const rows = (this.rows = this.positions?.length ?? nItems);
    this.center = this.number("center")!;
    this.itemBias = this.array("item_bias", [nItems])!;
    this.supported = this.array("supported", [nItems], 0, 1, true);
    const [octets, floats] = ["item_factors_int8", "item_factors"].map((each) => file.arrays.get(`${name}/${each}`));
    const stored = octets ?? floats;
    this.scale = octets && this.array("item_factors_scale", [rows], 0);
    const rank = stored?.shape[1];
    const fits = rank !== undefined && stored!.shape.length === 2 && stored!.shape[0] === rows;
    if (!fits || !this.itemBias || this.center === undefined || (octets && (floats || !this.scale))) {
      throw new Error("the arrays do not fit the catalogue");
    }
    if (octets ? octets.dtype !== "I8" : !isFloat(stored!)) throw new Error("arrays are of another type");
    if (rank > MOST_FACTORS) {
      throw new InputError(`A device folds nobody into ${rank} factors; train with at most ${MOST_FACTORS}.`);
    }
    [this.factors, this.rank] = [stored!.values, rank];
    this.recommending = [this.pairs(), this.words(), this.publicLikes()].filter((each) => each !== undefined);
  }

  /** Weights of the learned items for each other. */
  private pairs(): Recommending | undefined {
    const items = this.ascending("pair_items");
    const weights = this.array("pair_weights", [items?.length ?? 0, items?.length ?? 0]);
    if (!items !== !weights) throw new Error("pairs of items lack an array");
    return items && {
      part: "item pairs",
      of(item, add) {
        const place = find(items, item);
        if (place >= 0) items.forEach((other, k) => add(other, weights![place * items.length + k]!));
      },
    };
  }

  /** Items with similar words. */
  private words(): Recommending | undefined {
    const { nItems } = this;
    const near = this.array("neighbours", [nItems, -1], 0, nItems - 1, true);
    const count = (near?.length ?? 0) / nItems;
    const similarity = this.array("similarity", [nItems, count], 0, 1);
    const weight = this.number("word_weight");
    if (!near !== !similarity || (near && weight === undefined)) throw new Error("similar items lack an array");
    return near && {
      part: "words",
      of(item, add) {
        for (let at = item * count; at < (item + 1) * count; at++) add(near[at]!, weight! * similarity![at]! ** COSINE_POWER);
      },
    };
  }

  /** Items in the space of public likes. */
  private publicLikes(): Recommending | undefined {
    const { nItems } = this;
    const factors = this.array("public_factors", [nItems, -1]);
    const count = (factors?.length ?? 0) / nItems;
    const row = (item: number) => factors!.subarray(item * count, (item + 1) * count);
    return factors && {
      part: "public likes",
      of(item, add) {
        const own = row(item);
        for (let other = 0; other < nItems; other++) add(other, dot(row(other), own));
      },
    };
  }

  /**
   * An array of that shape, where -1 is any size.
   *
   * @throws Error if it has another shape or type, or numbers out of range.
   */
  array(name: string, shape: number[], least = -Infinity, most = Infinity, whole = false): Numbers | undefined {
    const stored = this.file.arrays.get(`${this.name}/${name}`);
    if (!stored) return undefined;
    const { shape: found, values } = stored;
    const odd = (value: number) => !(value >= least && value <= most);
    if (found.length !== shape.length || shape.some((size, k) => size >= 0 && size !== found[k])) throw new Error(`array '${name}' does not fit the catalogue`);
    if (isFloat(stored) === whole) throw new Error(`array '${name}' is of another type`);
    if (least > -Infinity && values.some(odd)) throw new Error(`array '${name}' has numbers out of range`);
    return values;
  }

  number(name: string, least = -Infinity, whole = false): number | undefined {
    return this.array(name, [], least, Infinity, whole)?.[0];
  }

  /** Ascending positions of items. */
  private ascending(name: string): Numbers | undefined {
    const items = this.array(name, [-1], 0, this.nItems - 1, true);
    if (items?.some((item, i) => i > 0 && item <= items[i - 1]!)) throw new Error(`array '${name}' does not fit the catalogue`);
    return items;
  }

  /** The factors of an item, then some numbers. */
  row(item: number, ...tail: number[]): Float64Array {
    return this.stored(this.place(item), ...tail);
  }

  /** A row of the factors, zeros if its number is negative, then some numbers. */
  stored(place: number, ...tail: number[]): Float64Array {
    const row = new Float64Array(this.rank + tail.length);
    const unit = place < 0 ? 0 : (this.scale?.[place] ?? 1);
    if (unit) for (let k = 0, at = place * this.rank; k < this.rank; k++) row[k] = unit * this.factors[at + k]!;
    row.set(tail, this.rank);
    return row;
  }

  /** The number of an item's row of the factors; -1 if it has none. */
  place(item: number): number {
    return this.positions ? find(this.positions, item) : item;
  }
}

/** The place of an item among ascending ones; -1 if it is not there. */
function find(items: Numbers, item: number): number {
  let [low, high] = [0, items.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (items[middle]! < item) low = middle + 1;
    else high = middle;
  }
  return items[low] === item ? low : -1;
}

const isFloat = ({ dtype }: Stored) => dtype.startsWith("F");
