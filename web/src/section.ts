/** The arrays and settings of one model of a file. */
import { InputError } from "./errors.js";
import type { ModelFile, Numbers } from "./modelfile.js";

export type ScoreKind = "ratings" | "likes" | "log-odds";

const SERVED = ["private-als", "item-bias", "popular", "private-eigenrec", "one-bit-user", "als", "dpals", "ease"];

/** The normal equations of so many take 32 MB. */
const MOST_FACTORS = 2000;

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
  /** The same if items recommend items. */
  readonly learned: Numbers | undefined;

  /**
   * @throws InputError if the model is none that a device can serve.
   * @throws Error if the arrays do not fit.
   */
  constructor(
    private readonly file: ModelFile,
    private readonly name: string,
    nItems: number,
  ) {
    ({ model: this.model, settings: this.settings, scores: this.scores } = file.header.sections[name]);
    if (!SERVED.includes(this.model)) {
      throw new InputError(`A device cannot serve '${this.model}'; train for both, for ratings or for lists.`);
    }
    this.nItems = nItems;
    this.learned = this.array("learned_items", -1);
    const positions = (this.positions = this.learned ?? this.array("item_factors_rows", -1));
    if (positions?.some((item, i) => !(item > (positions[i - 1] ?? -1) && item < nItems))) throw new Error("the rows of the factors do not fit the catalogue");
    const rows = (this.rows = positions?.length ?? nItems);
    this.center = this.number("center")!;
    this.itemBias = this.array("item_bias", nItems)!;
    this.supported = this.array("supported", nItems);
    const [octets, floats] = ["item_factors_int8", "item_factors"].map((each) => file.arrays.get(`${name}/${each}`));
    const stored = octets ?? floats;
    this.scale = octets && this.array("item_factors_scale", rows);
    const rank = stored?.shape[1];
    const fits = rank !== undefined && stored!.shape.length === 2 && stored!.shape[0] === rows;
    if (!fits || !this.itemBias || this.center === undefined || (octets && (floats || !this.scale))) {
      throw new Error("the arrays do not fit the catalogue");
    }
    if (octets ? !(octets.values instanceof Int8Array) : !isFloat(stored!.values)) throw new Error("arrays are of another type");
    if (!isFloat(this.itemBias) || (this.scale && !isFloat(this.scale))) throw new Error("arrays are of another type");
    if (this.learned && rank !== rows) throw new Error("the learned items have no weights for one another");
    if (!this.learned && rank > MOST_FACTORS) {
      throw new InputError(`A device folds nobody into ${rank} factors; train with at most ${MOST_FACTORS}.`);
    }
    [this.factors, this.rank] = [stored!.values, rank];
  }

  /** An array of so many numbers; of any number if that is -1. */
  array(name: string, count: number): Numbers | undefined {
    const stored = this.file.arrays.get(`${this.name}/${name}`);
    if (stored && (stored.shape.length !== 1 || (count >= 0 && stored.shape[0] !== count))) {
      throw new Error(`array '${name}' does not fit the catalogue`);
    }
    return stored?.values;
  }

  number(name: string): number | undefined {
    const stored = this.file.arrays.get(`${this.name}/${name}`);
    return stored?.shape.length === 0 ? stored.values[0] : undefined;
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
    const { positions } = this;
    if (!positions) return item;
    let [low, high] = [0, positions.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (positions[middle]! < item) low = middle + 1;
      else high = middle;
    }
    return positions[low] === item ? low : -1;
  }
}

const isFloat = (values: Numbers) => values instanceof Float32Array || values instanceof Float64Array;
