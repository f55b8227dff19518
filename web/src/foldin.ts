/** Folding a user into the released arrays (docs/reference/fold-in.md). */
import { Cholesky, combined, dot, normalMatrix } from "./ridge.js";
import type { Section } from "./section.js";

/** One user's ratings: ascending positions of items, and values. */
export interface Row {
  items: number[];
  values: number[];
}

/** The state of a user; private. */
export interface UserState {
  /** Added to every score. */
  offset: number;
  /** The user's taste, in the space of the item factors. */
  factors: Float64Array;
  /** The contribution of each of the user's items to an item's score. */
  moved(item: number): number[];
}

/** The state by the model's rule. Ratings are compared as float32, as in training. */
export function foldIn(section: Section, row: Row, midpoint: number): UserState {
  const { model, settings } = section;
  switch (model) {
    case "popular":
      return { ...nobody(section), moved: () => row.items.map(() => 0) };
    case "private-eigenrec":
    case "ease":
      return section.learned ? itemMatrix(section, row) : eigenrec(section, row);
    case "one-bit-user":
      return logistic(section, row, Math.fround(settings.threshold ?? midpoint));
    case "item-bias":
      return ridge(section, row, 1, settings.user_regularization);
    case "private-als":
      return ridge(section, row, section.number("regularization"), section.number("bias_regularization"));
    case "dpals":
      return ridge(section, row, settings.regularization, null);
  }
  const [regularization, offsets] = ["regularization", "bias_regularization"].map((name) => section.number(name));
  if (settings.unobserved_weight > 0) return ridge(section, row, regularization, null);
  const factor = 2 ** (settings.ridge_exponent * Math.round(Math.log2(row.items.length || 1)));
  return ridge(section, row, regularization! * factor, offsets);
}

/** The mean of the states of one user from several rows; rows of likes have sum 1. */
export function meanState(section: Section, rows: Row[], midpoint: number): UserState {
  const states = rows.map((row) => foldIn(section, row, midpoint));
  if (states.length === 1) return states[0]!;
  const [last, count] = [states.at(-1)!, states.length];
  const factors = new Float64Array(section.rank);
  for (const { factors: each } of states) {
    const sum = section.learned ? Math.max(each.reduce((a, b) => a + b, 0), 1) : 1;
    each.forEach((entry, k) => (factors[k]! += entry / sum / count));
  }
  return { offset: states.reduce((sum, { offset }) => sum + offset, 0) / count, factors, moved: last.moved };
}

function nobody({ rank }: Section): UserState {
  return { offset: 0, factors: new Float64Array(rank), moved: () => [] };
}

/** Ridge regression of the ratings on the item factors, with a constant where it has a ridge. */
function ridge(section: Section, row: Row, regularization?: number, offsetRidge?: number | null): UserState {
  const { center, itemBias, rank, settings } = section;
  const ridges = ridgesOf(rank, regularization, offsetRidge);
  if (!row.items.length) return nobody(section);
  const tail = offsetRidge === null ? [] : [1];
  const mean = settings.center === "user" ? row.values.reduce((a, b) => a + b, 0) / row.values.length : 0;
  const values = mean ? row.values.map((value) => Math.fround(value - mean)) : row.values;
  const targets = row.items.map((item, i) => values[i]! - (itemBias[item]! + center));
  const rows = row.items.map((item) => section.row(item, ...tail));
  const size = ridges.length;
  const matrix = normalMatrix(rows, ridges);
  const pull = settings.unobserved_weight;
  if (pull > 0) gramian(section).forEach((entry, at) => (matrix[at]! += pull * entry));
  const factored = new Cholesky(matrix, size);
  const solved = factored.solve(combined(rows, targets, size));
  return {
    offset: mean + (tail.length ? solved[rank]! : 0),
    factors: solved.slice(0, rank),
    moved(item) {
      const toward = factored.solve(section.row(item, ...tail));
      return rows.map((own, i) => targets[i]! * dot(own, toward));
    },
  };
}

function ridgesOf(rank: number, regularization?: number, offsetRidge?: number | null): Float64Array {
  if (!(regularization! >= 0 && (offsetRidge === null || offsetRidge! >= 0))) throw new Error("it has no ridge");
  return Float64Array.of(...new Array<number>(rank).fill(regularization!), ...(offsetRidge === null ? [] : [offsetRidge!]));
}

const gramians = new WeakMap<Section, Float64Array>();

/** Sum of all items' outer products, computed once. */
function gramian(section: Section): Float64Array {
  let found = gramians.get(section);
  if (!found) {
    const { rank } = section;
    found = new Float64Array(rank * rank);
    for (let place = 0; place < section.rows; place++) {
      const row = section.stored(place);
      for (let a = 0; a < rank; a++) for (let b = 0; b <= a; b++) found[a * rank + b]! += row[a]! * row[b]!;
    }
    gramians.set(section, found);
  }
  return found;
}

const STEPS = 12; // each lowers the loss, by its largest curvature
const CURVATURE = 0.25;

/** Logistic regression of likes and dislikes on the item factors. */
function logistic(section: Section, row: Row, threshold: number): UserState {
  const { center, itemBias, rank } = section;
  const rows = row.items.map((item) => section.row(item, 2));
  const offsets = row.items.map((item) => itemBias[item]! + center);
  const likes = row.values.map((value) => (value > threshold ? 1 : 0));
  const ridges = ridgesOf(rank, section.number("regularization"), section.number("bias_regularization"));
  if (!row.items.length) return nobody(section);
  const factored = new Cholesky(normalMatrix(rows, ridges, CURVATURE), rank + 1);
  const solved = new Float64Array(rank + 1);
  const missed = () => rows.map((own, i) => likes[i]! - 1 / (1 + Math.exp(-(dot(own, solved) + offsets[i]!))));
  for (let step = 0; step < STEPS; step++) {
    const downhill = combined(rows, missed(), rank + 1);
    for (let k = 0; k <= rank; k++) downhill[k]! -= solved[k]! * ridges[k]!;
    factored.solve(downhill).forEach((change, k) => (solved[k]! += change));
  }
  return {
    offset: 2 * solved[rank]!,
    factors: solved.slice(0, rank),
    moved(item) {
      const toward = section.row(item, 2).map((entry, k) => entry / ridges[k]!);
      const left = missed();
      return rows.map((own, i) => left[i]! * dot(own, toward));
    },
  };
}

/** Purchases, and ratings from the model's threshold up, or all. */
function liked({ settings }: Section, row: Row): number[] {
  const threshold = settings.like_threshold;
  return row.items.filter((_, i) => threshold == null || !(row.values[i]! < Math.fround(threshold))); // NaN: bought
}

/** Weighted sum of the factors of the likes, divided by their popularity or a stored number. */
function eigenrec(section: Section, row: Row): UserState {
  const weight = section.array("history_weight", section.nItems);
  if (!weight) throw new Error("it has no weights of a history");
  const likes = new Set(liked(section, row));
  const popularity = [...likes].reduce((sum, item) => sum + section.itemBias[item]! * weight[item]!, 0);
  const total = section.number("history_total") ?? popularity;
  const weights = row.items.map((item) => (likes.has(item) && total > 0 ? weight[item]! / total : 0));
  const rows = row.items.map((item) => section.row(item));
  return {
    offset: 0,
    factors: combined(rows, weights, section.rank),
    moved(item) {
      const toward = section.row(item);
      return rows.map((own, i) => weights[i]! * dot(own, toward));
    },
  };
}

/** Items recommend items: the factors are 1 for liked items. */
function itemMatrix(section: Section, row: Row): UserState {
  const likes = new Set(liked(section, row));
  const places = row.items.map((item) => (likes.has(item) ? section.place(item) : -1));
  const factors = new Float64Array(section.rank);
  for (const place of places) if (place >= 0) factors[place] = 1;
  return {
    offset: 0,
    factors,
    moved(item) {
      const at = section.place(item);
      return places.map((place) => {
        if (at < 0 || place < 0) return 0;
        return (section.scale?.[at] ?? 1) * section.factors[at * section.rank + place]!;
      });
    },
  };
}
