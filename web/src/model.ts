/** A trained model on the user's own device. */
import { Catalogue, type Id } from "./catalogue.js";
import { InputError, ModelFileError } from "./errors.js";
import { foldIn, meanState, type Row, type UserState } from "./foldin.js";
import { decode, type Numbers, otherVersion } from "./modelfile.js";
import { Applied, type Rules } from "./rules.js";
import { type Domain, pairsOf, type Rated, type Rating, type Ratings, type Refused, rowOf } from "./row.js";
import { addRecommended, allScores, type PublicScores, ranking, scoreOf } from "./scoring.js";
import { type Part, type ScoreKind, Section } from "./section.js";

const COPIES = 10;
/** Names of parts as sources. */
const SAID: Record<string, string> = { "item pairs": "pairs of items", words: "similar articles" };

export interface Scored {
  item: string;
  /** A list is ranked by it. */
  score: number;
}

export interface Recommended extends Scored {
  /** The predicted rating, from a model that predicts. */
  rating?: number;
}

export interface ListOptions extends Rules {
  /** The largest number of items; 10 by default. */
  n?: number;
  /** List what the user may choose next: the later a rating, the more it counts. The ratings are then a list in order, or have times. */
  next?: boolean;
  /** Items to leave out; the rated ones by default. */
  exclude?: Iterable<Id>;
  /** Recommend among these only. Ids that the catalogue lacks are skipped with a warning, here and in `exclude`. */
  only?: Iterable<Id>;
}

export interface Similar extends Scored {
  /** Sources that know the given items, such as "5 taste dimensions" or "public likes". */
  by: string[];
}

/** Why an item has its score, before items that do not exceed the noise are lowered. */
export interface Explanation extends Scored {
  /** The score without the items below. */
  base: number;
  /** The contribution of each of the user's items, the largest first. */
  because: { item: string; moved: number }[];
}

/** One of the models of a file. */
class Recommender {
  readonly scores: ScoreKind;

  constructor(
    protected readonly section: Section,
    readonly items: Catalogue,
    readonly domain: Domain,
    private readonly about: About,
    private readonly publicModel?: PublicScores,
  ) {
    this.scores = section.scores;
    for (const each of [section, ...(publicModel ? [publicModel.section] : [])]) {
      foldIn(each, { items: [], values: [] }, 0); // refused now where something is missing
    }
  }

  /** The number of taste dimensions that exceed the noise; undefined if the model does not know. */
  get directions(): number | undefined {
    return this.section.number("directions", 0, true) ?? (this.section.rank ? undefined : 0);
  }

  /** The state of a user; private. */
  foldIn(ratings: Ratings): UserState {
    return this.folded(ratings).state;
  }

  /** The best items for a user, best first. */
  recommend(ratings: Ratings, { n = 10, next = false, exclude, only, ...rules }: ListOptions = {}): Recommended[] {
    const { scores: every, supported, rated } = this.scored(ratings, next && inOrder(ratings));
    const without = exclude ? this.known(exclude, "exclude") : rated;
    return this.ruled(every, supported, without, n, rules, only && new Set(this.known(only, "only")));
  }

  /** The best items by these scores within rules, without some of them. */
  private ruled(every: Float64Array, supported: Numbers | undefined, without: number[], n: number, rules: Rules, among?: Set<number>): Scored[] {
    const said = new Applied(this.items.length, rules);
    const scores = ranking(said.boosted(every), supported);
    if (among) scores.forEach((_, item) => among.has(item) || (scores[item] = -Infinity));
    said.allowed?.forEach((allowed, item) => allowed || (scores[item] = -Infinity));
    for (const item of without) scores[item] = -Infinity;
    return this.named(said.best(scores, count(n), supported), (item) => scores[item]!);
  }

  /** Predicted scores of some items; ratings are clipped to the range. */
  predict(ratings: Ratings, items: Iterable<Id>): number[] {
    if (this.publicModel || this.section.recommending.length) {
      const { scores } = this.scored(ratings);
      return this.positions(items).map((item) => this.clipped(scores[item]!));
    }
    const state = this.foldIn(ratings);
    return this.positions(items).map((item) => this.clipped(scoreOf(this.section, state, item)));
  }

  /** The contribution of the user's items to the score of this one. */
  explain(ratings: Ratings, item: Id): Explanation {
    const { scores, moved: movedBy, rated } = this.scored(ratings);
    const [at] = this.positions([item]);
    const score = scores[at!]!;
    const moved = movedBy(at!);
    const because = rated.map((own, i) => ({ item: this.items.at(own), moved: moved[i]! }));
    because.sort((a, b) => Math.abs(b.moved) - Math.abs(a.moved));
    return { item: this.items.at(at!), score, base: score - moved.reduce((a, b) => a + b, 0), because };
  }

  /** Items that go together with one or several. */
  similarItems(item: Id | readonly Id[], n = 10, rules: Rules = {}): Similar[] {
    const given = Array.isArray(item) ? (item as Id[]) : [item as Id];
    if (!given.length) throw new InputError("The list of items is empty; pass one item or more.");
    const places = this.positions(given);
    const each = new Set(places).size;
    const { scores, supported, state, theirs } = this.scored(given.map((item) => [item, this.domain.high] as const), false, each);
    const by = this.sources(state, theirs);
    if (!by.length) this.refuse(given[0]!);
    return this.ruled(scores, supported, places, n, rules).map((each) => ({ ...each, by }));
  }

  /** The ratings that this model can use, and the others with the reason. */
  usable(ratings: Ratings): { ratings: Map<string, Rating>; refused: Refused[] } {
    const { row, refused } = rowOf(this.pairs(ratings), this.items, this.domain, this.purchases);
    const ratingOf = (value: number) => (Number.isNaN(value) ? null : value);
    return { ratings: new Map(row.items.map((item, i) => [this.items.at(item), ratingOf(row.values[i]!)])), refused };
  }

  /** Whether a history may hold purchases without ratings. */
  get purchases(): boolean {
    return this.scores === "likes" && (this.section.model === "popular" || "like_threshold" in this.section.settings);
  }

  protected pairs(ratings: Ratings): Rated[] {
    return pairsOf(ratings, this.domain, this.scores === "likes");
  }

  /** All scores, contributions to one, and the items that come first if the scores are not lowered yet; of items that go together with so many given ones. */
  private scored(ratings: Ratings, next = false, given = 0) {
    const { section, publicModel } = this;
    const { state: found, rated, rows, midpoint } = this.folded(ratings, next);
    const state = given && section.number("history_prior") !== undefined ? resembling(section, found, given) : found;
    const own = allScores(section, state);
    if (!publicModel) return { scores: own, moved: state.moved, supported: section.supported, rated, state };
    const theirs = meanState(publicModel.section, rows, midpoint);
    const mixed = (other: ArrayLike<number>) => (value: number, i: number) =>
      (1 - publicModel.weight) * value + publicModel.weight * other[i]!;
    const scores = own.map(mixed(allScores(publicModel.section, theirs)));
    const moved = (item: number) => state.moved(item).map(mixed(theirs.moved(item)));
    return { scores, moved, supported: section.supported, rated, state, theirs };
  }

  /** The state from all ratings; of what comes next, the mean of those from the latest ones and from all. */
  private folded(ratings: Ratings, next = false): { state: UserState; rated: number[]; rows: Row[]; midpoint: number } {
    const { row, spans, refused } = rowOf(this.pairs(ratings), this.items, this.domain, this.purchases);
    for (const { item, why } of refused) throw new InputError(`Item '${String(item)}' ${why}; leave it out.`);
    const rows = [...(next ? spans : []), row].map((each) => (this.scores === "likes" ? each : rated(each)));
    const { low, high } = this.domain;
    const midpoint = low + (high - low) / 2;
    return { state: meanState(this.section, rows, midpoint), rated: rows.at(-1)!.items, rows, midpoint };
  }

  private get catalogue() {
    return `the model's catalogue of ${this.items.length.toLocaleString("en-US")} items`;
  }

  private positions(ids: Iterable<Id>): number[] {
    const given = listed(ids);
    const places = given.map((id) => this.items.indexOf(id));
    const unknown = places.findIndex((at) => at < 0);
    if (unknown >= 0) throw new InputError(`Item '${given[unknown]}' is not in ${this.catalogue}; leave it out.`);
    return places;
  }

  /** The positions of the items of a public list that the catalogue has. */
  private known(ids: Iterable<Id>, name: string): number[] {
    const given = listed(ids);
    const places = given.map((id) => this.items.indexOf(id)).filter((at) => at >= 0);
    const skipped = given.length - places.length;
    if (name === "exclude" && skipped && !places.length) {
      throw new InputError(`exclude has no item of ${this.catalogue}; pass a list with the ids of the catalogue.`);
    }
    if (skipped) console.warn(`${name}: skipped ${skipped} of ${plural(given.length, "item")}, not in ${this.catalogue}.`);
    return places;
  }

  private named(items: number[], score: (item: number) => number): Scored[] {
    return items.map((item) => ({ item: this.items.at(item), score: score(item) }));
  }

  private clipped(score: number): number {
    return this.scores === "ratings" ? Math.min(Math.max(score, this.domain.low), this.domain.high) : score;
  }

  /** The names of the sources that know the items of a history. */
  private sources(state: UserState, theirs?: UserState): string[] {
    const { judged } = this.about;
    const found = !theirs || !judged || judged.weight < 1 ? this.learned(state) : [];
    if (!theirs || !judged || !known(theirs.factors)) return found;
    if (judged.features) found.push("item features");
    if (judged.donors) found.push(plural(judged.donors, "donor"));
    return judged.external ? [...found, "ratings of another population"] : found;
  }

  private learned(state: UserState): string[] {
    const { section } = this;
    const recommends = (part: string) => {
      const own = section.recommending.find((each) => each.part === part);
      return own && known(addRecommended(own, state, new Float64Array(section.nItems)));
    };
    let end = 0;
    const parts: Part[] = section.parts.length ? section.parts : [["tastes", 1, section.rank], ["item pairs", 1, 0]];
    return parts.flatMap(([part, , columns]) => {
      const shown = known(state.factors.subarray(end, (end += columns)));
      if (part !== "tastes") return shown || recommends(part) ? [SAID[part] ?? part] : [];
      const directions = section.number("directions", 0, true) ?? (this.about.isPrivate ? 0 : columns);
      return shown && directions ? [plural(directions, "taste dimension")] : [];
    });
  }

  private refuse(item: Id): never {
    const { directions, publicModel, section } = this;
    if (directions === undefined && this.about.isPrivate && !publicModel) {
      throw new InputError(
        "This model cannot distinguish the tastes that it learned from noise, so items cannot be compared; train for lists, or for both.",
      );
    }
    if (!directions && !section.parts.length && !section.recommending.length && !publicModel) {
      throw new InputError(
        "This model does not know which items go together: no taste dimension exceeds its noise. A table of articles and donors help a training of few users; another training adds to the privacy cost.",
      );
    }
    throw new InputError(
      `Nothing is known of item '${item}': too few users like it at this epsilon, and no public data describe it. Pass a more popular item, or train with a table of articles or donors.`,
    );
  }
}

interface About {
  isPrivate: boolean;
  judged?: { weight: number; donors: number; external: boolean; features: boolean };
}

/** The state of a user who likes so many given items, and nine more that resemble each. */
function resembling(section: Section, { likes, factors, ...rest }: UserState, given: number): UserState {
  const prior = (section.number("history_prior") ?? 0) / given;
  const scaled = factors.map((entry) => (entry * (1 + prior)) / (1 + prior / COPIES));
  const more = likes && new Map([...likes].map(([item, weight]) => [item, weight * Math.sqrt(COPIES)]));
  return { ...rest, factors: scaled, ...(more && { likes: more }) };
}

/** A row without its purchases. */
function rated({ items, values }: Row): Row {
  const kept = items.map((_, i) => !Number.isNaN(values[i]));
  return { items: items.filter((_, i) => kept[i]), values: values.filter((_, i) => kept[i]) };
}

function listed(ids: Iterable<Id>): Id[] {
  if (typeof ids === "string") throw new InputError(`'${ids as string}' is one id; pass a list of ids.`);
  return [...ids];
}

const known = (factors: Float64Array) => factors.some((entry) => entry !== 0);
const plural = (number: number, what: string) => `${number.toLocaleString("en-US")} ${what}${number === 1 ? "" : "s"}`;

/** A model file: its model of ratings predicts, that of lists does all else. */
export class Model extends Recommender {
  readonly lists: Recommender | undefined;

  private constructor(
    section: Section,
    lists: Section | undefined,
    items: Catalogue,
    domain: Domain,
    /** The privacy statement. */
    readonly privacy: Readonly<Record<string, any>>,
    /** SHA-256, hexadecimal. */
    readonly digest: string,
    about: About,
    publicModel?: PublicScores,
  ) {
    super(section, items, domain, about, publicModel);
    this.lists = lists && new Recommender(lists, items, domain, about);
  }

  /**
   * Read the bytes of a model file.
   *
   * @throws ModelFileError if they are damaged, or no model that a device can serve.
   */
  static async read(bytes: Uint8Array): Promise<Model> {
    const file = await decode(bytes);
    try {
      const { rating_range: [low, high], max_ratings_per_user: mostRatings, likes } = file.header.domain;
      const domain: Domain = { low, high, likes: likes === true, mostRatings };
      if (!(low < high && mostRatings >= 1)) throw new Error("it declares no rating range");
      if (typeof file.header.privacy.private !== "boolean") throw new Error("it has no privacy statement");
      const items = new Catalogue(file);
      const sections = ["serve", "lists"].map((name) =>
        file.header.sections[name] ? new Section(file, name, items.length) : undefined,
      );
      if (!sections[0]) throw new Error("it has no model");
      const held = file.header.sections.public;
      const publicModel = held && { section: new Section(file, "public", items.length), weight: held.weight };
      const kinds = [sections[0].scores, publicModel?.section.scores].every((kind) => kind === "ratings");
      if (publicModel && !(publicModel.weight > 0 && publicModel.weight <= 1 && kinds)) {
        throw new Error("the public model does not fit the private one");
      }
      const { privacy, judged } = file.header;
      const about = { isPrivate: privacy.private, judged };
      return new Model(sections[0], sections[1], items, domain, privacy, file.digest, about, publicModel);
    } catch (error) {
      if (error instanceof InputError) throw new ModelFileError(error.message);
      return otherVersion((error as Error).message);
    }
  }

  override get purchases(): boolean {
    return this.lists ? this.lists.purchases : super.purchases;
  }

  override get directions(): number | undefined {
    return this.lists ? this.lists.directions : super.directions;
  }

  override recommend(ratings: Ratings, options?: ListOptions): Recommended[] {
    if (options?.next) inOrder(ratings);
    const pairs = this.pairs(ratings);
    const listed = this.lists ? this.lists.recommend(pairs, options) : super.recommend(pairs, options);
    if (this.scores !== "ratings") return listed;
    const predicted = this.predict(pairs, listed.map(({ item }) => item));
    return listed.map((each, place) => ({ ...each, rating: predicted[place]! }));
  }

  override explain(ratings: Ratings, item: Id): Explanation {
    return this.lists ? this.lists.explain(this.pairs(ratings), item) : super.explain(ratings, item);
  }

  override similarItems(item: Id | readonly Id[], n?: number, rules?: Rules): Similar[] {
    return this.lists ? this.lists.similarItems(item, n, rules) : super.similarItems(item, n, rules);
  }
}

export type { Recommender };

/** True; refuses ratings without an order. */
function inOrder(ratings: Ratings): true {
  if (ratings instanceof Map || !(typeof ratings !== "object" || ratings === null || Symbol.iterator in ratings)) {
    throw new InputError(
      "next needs an order, and a mapping has none: pass a list of [item, rating, time], or of pairs or items with the latest last.",
    );
  }
  return true;
}

function count(n: number): number {
  if (!Number.isSafeInteger(n) || n < 1) throw new InputError(`n=${n} is not a positive number of items; pass for example 10.`);
  return n;
}
