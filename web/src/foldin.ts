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
  /** The weights of the user's likes, where items recommend items. */
  likes?: Map<number, number>;
  /** The contribution of each of the user's items to an item's score. */
  moved(item: number): number[];
}

/** The state by the model's rule. Ratings are compared as float32, as in training. */
export function foldIn(section: Section, row: Row, midpoint: number, prior = section.number("history_prior", 0)): UserState {
  const { model, settings } = section;
  switch (model) {
    case "popular":
      return nobody(section, row);
    case "private-eigenrec":
      return eigenrec(section, row, liked(section, row), prior);
    case "ease":
      return recommended(section, row, liked(section, row), nobody(section, row));
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

/** The mean of the states of one user from several rows. */
export function meanState(section: Section, rows: Row[], midpoint: number): UserState {
  if (rows.length === 1) return foldIn(section, rows[0]!, midpoint);
  const states = rows.map((row) => foldIn(section, row, midpoint, section.parts.length ? undefined : 0));
  const [last, count] = [states.at(-1)!, states.length];
  const factors = new Float64Array(section.rank);
  const likes = new Map<number, number>();
  for (const state of states) {
    state.factors.forEach((entry, k) => (factors[k]! += entry / count));
    state.likes?.forEach((weight, item) => likes.set(item, (likes.get(item) ?? 0) + weight / count));
  }
  return { ...last, offset: states.reduce((sum, { offset }) => sum + offset, 0) / count, factors, ...(last.likes && { likes }) };
}

function nobody({ rank }: Section, { items }: Row): UserState {
  return { offset: 0, factors: new Float64Array(rank), moved: () => items.map(() => 0) };
}

/** Ridge regression of the ratings on the item factors, with a constant where it has a ridge. */
function ridge(section: Section, row: Row, regularization?: number, offsetRidge?: number | null): UserState {
  const { center, itemBias, rank, settings } = section;
  const ridges = ridgesOf(rank, regularization, offsetRidge);
  if (!row.items.length) return nobody(section, row);
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
  if (!row.items.length) return nobody(section, row);
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
function liked({ settings }: Section, row: Row): Set<number> {
  const threshold = settings.like_threshold;
  return new Set(row.items.filter((_, i) => threshold == null || !(row.values[i]! < Math.fround(threshold)))); // NaN: bought
}

/** Weighted sum of the factors of the likes, divided by their popularity. */
function eigenrec(section: Section, row: Row, likes: Set<number>, prior?: number): UserState {
  const shape = [section.nItems];
  const weight = section.array("history_weight", shape, 0);
  const stored = section.array("history_popularity", shape, 0);
  if (!weight || (stored && prior === undefined)) throw new Error("it has no weights of a history");
  const popularity = stored ?? section.itemBias;
  const sum = [...likes].reduce((sum, item) => sum + popularity[item]! * weight[item]!, 0);
  const total = sum * (1 + (prior ?? 0) / Math.max(likes.size, 1));
  const weights = row.items.map((item) => (likes.has(item) && total > 0 ? weight[item]! / total : 0));
  const rows = row.items.map((item) => section.row(item));
  return recommended(section, row, likes, {
    offset: 0,
    factors: combined(rows, weights, section.rank),
    moved(item) {
      const toward = section.row(item);
      return rows.map((own, i) => weights[i]! * dot(own, toward));
    },
  });
}

/** A state with likes at norm 1, if items recommend items. */
function recommended({ recommending }: Section, row: Row, liked: Set<number>, state: UserState): UserState {
  if (!recommending.length) return state;
  const likes = new Map([...liked].map((item) => [item, 1 / Math.sqrt(liked.size)]));
  return {
    ...state,
    likes,
    moved(item) {
      const moved = row.items.map((own) => {
        let sum = 0;
        for (const { of } of liked.has(own) ? recommending : []) of(own, (other, score) => (sum += other === item ? score : 0));
        return sum * (likes.get(own) ?? 0);
      });
      return state.moved(item).map((each, i) => each + moved[i]!);
    },
  };
}
