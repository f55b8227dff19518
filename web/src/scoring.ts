/** Scores of all items, and the best of them. */
import type { UserState } from "./foldin.js";
import type { Numbers } from "./modelfile.js";
import { dot } from "./ridge.js";
import type { Recommending, Section } from "./section.js";

/** A public model of ratings next to a private one. */
export interface PublicScores {
  section: Section;
  weight: number;
}

/** The score of every item for one user: center + offset + item bias + factors . item factors, and what items recommend. */
export function allScores(section: Section, state: UserState): Float64Array {
  const { nItems, itemBias, center, factors, scale, positions, rows } = section;
  const scores = new Float64Array(nItems);
  const products = positions ? new Float64Array(rows) : scores;
  addProducts(factors, scale, state.factors, products);
  positions?.forEach((item, row) => (scores[item] = products[row]!));
  for (let item = 0; item < nItems; item++) scores[item]! += state.offset + (center + itemBias[item]!);
  for (const each of section.recommending) addRecommended(each, state, scores);
  return scores;
}

/** Adds what the user's likes add to other items by one part. */
export function addRecommended({ of }: Recommending, { likes }: UserState, scores: Float64Array): Float64Array {
  likes?.forEach((weight, own) => of(own, (other, score) => (scores[other]! += weight * score)));
  return scores;
}

export function scoreOf(section: Section, { offset, factors }: UserState, item: number): number {
  return offset + (section.center + section.itemBias[item]!) + dot(section.row(item), factors);
}

/** Lowers the scores of items not in `first` by one number, in place: the best comes just below the least of `first`. */
export function ranking(scores: Float64Array, first?: Numbers): Float64Array {
  let [least, most] = [Infinity, -Infinity];
  scores.forEach((score, item) => {
    if (!first || first[item]) least = Math.min(least, score);
    else most = Math.max(most, score);
  });
  if (!first || most === -Infinity || least === Infinity) return scores;
  const lowered = Math.max(most - least, 0);
  const below = least - Math.max(Math.abs(least) * Number.EPSILON, Number.MIN_VALUE);
  scores.forEach((score, item) => first[item] || (scores[item] = Math.min(score - lowered, below)));
  return scores;
}

/** Four items at a time, which is faster. */
function addProducts(factors: Numbers, scale: Numbers | undefined, taste: Float64Array, scores: Float64Array): void {
  const rank = taste.length;
  const whole = scores.length - (scores.length % 4);
  for (let item = 0; item < whole; item += 4) {
    const first = item * rank;
    const second = first + rank;
    const third = second + rank;
    const fourth = third + rank;
    let a = 0;
    let b = 0;
    let c = 0;
    let d = 0;
    for (let k = 0; k < rank; k++) {
      const own = taste[k]!;
      a += factors[first + k]! * own;
      b += factors[second + k]! * own;
      c += factors[third + k]! * own;
      d += factors[fourth + k]! * own;
    }
    scores[item] = scale ? scale[item]! * a : a;
    scores[item + 1] = scale ? scale[item + 1]! * b : b;
    scores[item + 2] = scale ? scale[item + 2]! * c : c;
    scores[item + 3] = scale ? scale[item + 3]! * d : d;
  }
  for (let item = whole; item < scores.length; item++) {
    let sum = 0;
    for (let k = 0; k < rank; k++) sum += factors[item * rank + k]! * taste[k]!;
    scores[item] = scale ? scale[item]! * sum : sum;
  }
}

/** The items of the best scores: those in `first` before the others, ties ascending. -Infinity and NaN are never chosen. */
export function best(scores: Float64Array, n: number, first?: Numbers): number[] {
  const group = (item: number) => (first && !first[item] ? 0 : 1);
  const better = (a: number, b: number) => group(b) - group(a) || scores[b]! - scores[a]! || a - b;
  let chosen: number[] = [];
  let least = -Infinity; // what a score must be above, in its group, once there are n
  let leading = 0;
  for (let item = 0; item < scores.length; item++) {
    const score = scores[item]!;
    const lead = first && !first[item] ? 0 : 1;
    if (lead === leading ? !(score > least) : lead < leading || !(score > -Infinity)) continue;
    chosen.push(item);
    if (chosen.length < 2 * n + 64) continue;
    chosen = chosen.sort(better).slice(0, n);
    least = scores[chosen[n - 1]!]!;
    leading = group(chosen[n - 1]!);
  }
  return chosen.sort(better).slice(0, n);
}
