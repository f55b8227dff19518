/** Scores of all items, and the best of them. */
import type { UserState } from "./foldin.js";
import type { Numbers } from "./modelfile.js";
import type { Section } from "./section.js";

/** The score of every item for one user: center + offset + item bias + factors . item factors. */
export function allScores(section: Section, state: UserState): Float64Array {
  const { nItems, itemBias, factors, scale, learned, rank } = section;
  const base = state.offset;
  const scores = new Float64Array(nItems);
  for (let item = 0; item < nItems; item++) scores[item] = base + (section.center + itemBias[item]!);
  if (!rank) return scores;
  const products = learned ? new Float64Array(learned.length) : scores;
  if (learned) addChosen(factors, state.factors, products);
  else if (scale) addScaled(factors as Int8Array, scale, state.factors, products);
  else addProducts(factors, state.factors, products);
  learned?.forEach((item, row) => (scores[item]! += (scale?.[row] ?? 1) * products[row]!));
  return scores;
}

function addProducts(factors: Numbers, taste: Float64Array, scores: Float64Array): void {
  const [count, rank] = [scores.length, taste.length];
  const whole = rank - (rank % 4);
  for (let item = 0, at = 0; item < count; item++) {
    let [a, b, c, d] = [0, 0, 0, 0];
    let k = 0;
    for (; k < whole; k += 4, at += 4) {
      a += factors[at]! * taste[k]!;
      b += factors[at + 1]! * taste[k + 1]!;
      c += factors[at + 2]! * taste[k + 2]!;
      d += factors[at + 3]! * taste[k + 3]!;
    }
    for (; k < rank; k++, at++) a += factors[at]! * taste[k]!;
    scores[item]! += a + b + (c + d);
  }
}

/** The same for factors of one byte: apart, so that either loop meets one type of number. */
function addScaled(factors: Int8Array, scale: Numbers, taste: Float64Array, scores: Float64Array): void {
  const [count, rank] = [scores.length, taste.length];
  const whole = rank - (rank % 4);
  for (let item = 0, at = 0; item < count; item++) {
    let [a, b, c, d] = [0, 0, 0, 0];
    let k = 0;
    for (; k < whole; k += 4, at += 4) {
      a += factors[at]! * taste[k]!;
      b += factors[at + 1]! * taste[k + 1]!;
      c += factors[at + 2]! * taste[k + 2]!;
      d += factors[at + 3]! * taste[k + 3]!;
    }
    for (; k < rank; k++, at++) a += factors[at]! * taste[k]!;
    scores[item]! += scale[item]! * (a + b + (c + d));
  }
}

/** Only the columns where her factors are not 0: few of many. */
function addChosen(factors: Numbers, taste: Float64Array, products: Float64Array): void {
  const chosen = [...taste.keys()].filter((k) => taste[k]);
  products.forEach((_, row) => {
    for (const k of chosen) products[row]! += taste[k]! * factors[row * taste.length + k]!;
  });
}

/**
 * The items of the best scores: those of `first` before the others, equal ones in ascending order.
 * What is -Infinity or not a number is never chosen.
 */
export function best(scores: Float64Array, n: number, first?: Numbers): number[] {
  const group = (item: number) => (first && !first[item] ? 0 : 1);
  const better = (a: number, b: number) => group(b) - group(a) || scores[b]! - scores[a]! || a - b;
  let chosen: number[] = [];
  let [least, leading] = [-Infinity, 0]; // what a score must be above, in its group, once there are n
  for (let item = 0; item < scores.length; item++) {
    const score = scores[item]!;
    const lead = group(item);
    if (!(lead > leading || (lead === leading && score > least)) || !(score > -Infinity)) continue;
    chosen.push(item);
    if (chosen.length < 2 * n + 64) continue;
    chosen = chosen.sort(better).slice(0, n);
    [least, leading] = [scores[chosen[n - 1]!]!, group(chosen[n - 1]!)];
  }
  return chosen.sort(better).slice(0, n);
}
