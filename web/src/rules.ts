/** Rules for lists, as hushrec.serving.Attributes and Rules of the Python library. */
import { type Catalogue, type Id, wellFormed } from "./catalogue.js";
import { InputError } from "./errors.js";
import type { Numbers } from "./modelfile.js";
import { best } from "./scoring.js";

export interface Rules {
  attributes?: Attributes;
  /** List items for which this is true, such as "in_stock and price < 50". */
  where?: string;
  /** The most items that may share a value of a column: { brand: 2 }. */
  atMost?: Record<string, number>;
  /** Factors for items for which a condition is true: { new: 1.1 }. */
  boost?: Record<string, number>;
}

type Value = number | string | null;
type Column = { kind: "number" | "text" | "none" | "other"; values: Value[] };
/** A column, or one value for all items. */
type Operand = { kind: Column["kind"]; at: (item: number) => Value; constant: boolean; truth: boolean };
/** For each item: 0 false, 1 null, 2 true. */
type Truths = Uint8Array;

/** Characters of a condition, and parentheses within each other. */
const [MOST_LETTERS, MOST_NESTED] = [2000, 50];
/** Entries of boost and of atMost; operations of all conditions together times the number of items. */
const [MOST_ENTRIES, MOST_WORK] = [20, 50_000_000];
const TITLES = ["title", "name"];
const TOKEN =
  /[ \t\r\n]*(?:(-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|('(?:[^']|'')*'|"(?:[^"]|"")*")|`([^`]+)`|([A-Za-z_][A-Za-z_0-9]*)|(<=|>=|!=|<>|==|[=<>])|([(),]))/y;
const COMPARED: Record<string, (order: number) => boolean> = {
  "=": (order) => order === 0,
  "==": (order) => order === 0,
  "!=": (order) => order !== 0,
  "<>": (order) => order !== 0,
  "<": (order) => order < 0,
  "<=": (order) => order <= 0,
  ">": (order) => order > 0,
  ">=": (order) => order >= 0,
};
const [NUMBER, TEXT, NAME, WORD, SIGN] = [1, 2, 3, 4, 5];
const WORDS = ["and", "or", "not", "in", "is", "null", "true", "false"];

/** A public table of items: columns by name, the one named item with their ids. */
export class Attributes {
  private readonly columns = new Map<string, Column>();
  private readonly nItems: number;

  constructor(table: Readonly<Record<string, readonly unknown[]>>, items: Catalogue) {
    const ids = table["item"];
    if (!Array.isArray(ids)) throw new InputError("Attributes need a column of item ids, named item.");
    const places = ids.map((id) => items.indexOf(id as Id));
    const known = places.filter((place) => place >= 0);
    if (!known.length) throw new InputError("No item of the catalogue is in the attributes; check that the table uses the catalogue's ids.");
    if (new Set(known).size < known.length) throw new InputError("The attributes hold an item id twice; give every item one row.");
    this.nItems = items.length;
    for (const [name, cells] of Object.entries(table)) {
      if (cells.length !== ids.length) throw new InputError(`Column '${name}' of the attributes is not as long as the item ids.`);
      if (![name, ...cells].every((cell) => typeof cell !== "string" || wellFormed(cell))) {
        throw new InputError(`Column '${name}' of the attributes has half a character (a lone surrogate).`);
      }
      const values = new Array<unknown>(items.length).fill(null);
      places.forEach((place, row) => place >= 0 && (values[place] = plain(cells[row])));
      const [kind, ...more] = new Set(values.filter((value) => value !== null).map((value) => typeof value));
      const is = !kind ? "none" : more.length ? "other" : kind === "number" ? "number" : kind === "string" ? "text" : "other";
      if (name !== "item") this.columns.set(name, { kind: is, values: values as Value[] });
    }
  }

  /** The title of an item, from the column title or name. */
  title(item: number): string | undefined {
    const held = TITLES.map((name) => this.columns.get(name)).find((column) => column?.kind === "text");
    return (held?.values[item] as string | null | undefined) ?? undefined;
  }

  /** For which items a condition is true; null is not true, as in SQL. */
  matching(condition: string | Condition): boolean[] {
    const read = typeof condition === "string" ? new Condition(condition) : condition;
    return Array.from(read.evaluate((name) => this.column(name), this.nItems), (truth) => truth === 2);
  }

  column(name: string): Column {
    const found = this.columns.get(name);
    const known = [...this.columns.keys()].join(", ") || "none";
    if (!found) throw new InputError(`There is no column '${name}' in the attributes; there are: ${known}.`);
    if (found.kind === "other") throw new InputError(`Column '${name}' of the attributes holds neither numbers nor texts alone.`);
    return found;
  }
}

/** Rules, evaluated for every item. */
export class Applied {
  readonly allowed: boolean[] | undefined;
  readonly factors: Float64Array | undefined;
  readonly limits: { values: Value[]; most: number }[] = [];

  constructor(nItems: number, { attributes, where, atMost = {}, boost = {} }: Rules) {
    const [boosts, limits] = [Object.entries(boost), Object.entries(atMost)];
    if (where === undefined && !limits.length && !boosts.length) return;
    if (!attributes) throw new InputError("where, atMost and boost need a table of the items; pass attributes.");
    for (const [name, { length }] of Object.entries({ boost: boosts, atMost: limits })) {
      if (length > MOST_ENTRIES) throw new InputError(`${name} has ${length} entries; pass at most ${MOST_ENTRIES}.`);
    }
    for (const [, most] of limits) {
      if (!Number.isSafeInteger(most) || most < 1) throw new InputError(`atMost gives a positive number of items, not ${most}.`);
    }
    for (const [, factor] of boosts) {
      if (!(factor > 0 && factor <= 1e6)) throw new InputError(`boost multiplies by a number above 0, at most 1000000, not ${factor}.`);
    }
    const texts = new Set([...(where === undefined ? [] : [where]), ...Object.keys(boost)]);
    const conditions = new Map(Array.from(texts, (text) => [text, new Condition(text)]));
    const operations = [...conditions.values()].reduce((sum, condition) => sum + condition.operations, 0);
    if (operations * nItems > MOST_WORK) {
      throw new InputError(
        `The conditions have ${operations} names, words and signs, which is too much work for ${nItems} items: shorten them to ${Math.floor(MOST_WORK / nItems)}, or compute a column of truth values beforehand.`,
      );
    }
    for (const [name, most] of limits) this.limits.push({ values: attributes.column(name).values, most });
    if (where !== undefined) this.allowed = attributes.matching(conditions.get(where)!);
    if (boosts.length) this.factors = new Float64Array(nItems).fill(1);
    for (const [text, factor] of boosts) {
      attributes.matching(conditions.get(text)!).forEach((match, item) => match && (this.factors![item]! *= factor));
    }
  }

  /** Multiplies the distance of each score to the lowest, in place. */
  boosted(scores: Float64Array): Float64Array {
    const { factors } = this;
    if (!factors) return scores;
    const least = scores.reduce((a, b) => Math.min(a, b), Infinity);
    scores.forEach((score, item) => (scores[item] = least + factors[item]! * (score - least)));
    return scores;
  }

  /** The best items within the limits. */
  best(scores: Float64Array, n: number, first?: Numbers): number[] {
    if (!this.limits.length) return best(scores, n, first);
    const [left, chosen] = [scores.slice(), [] as number[]];
    const seen = this.limits.map(() => new Map<Value, number>());
    for (;;) {
      const candidates = best(left, n, first);
      for (const item of candidates) {
        left[item] = -Infinity;
        const kinds = this.limits.map(({ values }) => values[item]!);
        const full = kinds.some((kind, at) => kind !== null && (seen[at]!.get(kind) ?? 0) >= this.limits[at]!.most);
        if (full || chosen.length === n) continue;
        chosen.push(item);
        kinds.forEach((kind, at) => seen[at]!.set(kind, (seen[at]!.get(kind) ?? 0) + 1));
      }
      if (chosen.length === n || !candidates.length) return chosen;
      this.limits.forEach(({ values, most }, at) =>
        values.forEach((kind, item) => kind !== null && (seen[at]!.get(kind) ?? 0) >= most && (left[item] = -Infinity)),
      );
    }
  }
}

/** A cell as a number or text; null if it is empty. */
function plain(cell: unknown): unknown {
  if (typeof cell === "boolean") return Number(cell);
  return cell === undefined || cell === "" || Number.isNaN(cell) ? null : cell;
}

/** By code points, as Python and Arrow order texts. */
function orderOf(one: number | string, other: number | string): number {
  if (typeof one === "number" || typeof other === "number") return Number(one) - Number(other) || (one === other ? 0 : one > other ? 1 : -1);
  let place = 0;
  while (place < one.length && one.charCodeAt(place) === other.charCodeAt(place)) place++;
  const unit = (text: string) => {
    const code = place < text.length ? text.charCodeAt(place) : -1;
    return code >= 0xe000 ? code - 0x800 : code >= 0xd800 ? code + 0x2000 : code; // surrogates come last
  };
  return unit(one) - unit(other);
}

/** A condition as tokens. */
class Condition {
  private readonly tokens: { kind: number; text: string; at: number }[] = [];
  private column!: (name: string) => Column;
  private nItems = 0;
  private next = 0;
  private depth = 0;
  private began = 0;

  constructor(private readonly text: string) {
    if (typeof text !== "string" || !text.trim() || [...text].length > MOST_LETTERS) {
      throw new InputError(`A condition is a text of at most ${MOST_LETTERS} letters, such as "in_stock and price < 50".`);
    }
    if (!wellFormed(text)) this.refuse(0, "has half a character (a lone surrogate)");
    for (let end = 0; /[^ \t\r\n]/.test(text.slice(end)); end = TOKEN.lastIndex) {
      TOKEN.lastIndex = end;
      const found = TOKEN.exec(text);
      const hint = "; put a column such as `on sale` in backticks";
      if (!found) return this.refuse(end, "has something that is neither name, number, text nor sign", hint);
      const kind = found.findIndex((group, k) => k > 0 && group !== undefined);
      this.tokens.push({ kind, text: found[kind]!, at: TOKEN.lastIndex - found[kind]!.length - Number(kind === NAME) });
    }
    this.tokens.push({ kind: 0, text: "", at: text.length });
  }

  /** The number of names, words and signs: each is one pass over the items at most. */
  get operations(): number {
    return this.tokens.filter(({ kind }) => kind >= NAME && kind <= SIGN).length;
  }

  evaluate(column: (name: string) => Column, nItems: number): Truths {
    [this.column, this.nItems, this.next, this.depth] = [column, nItems, 0, 0];
    const truths = this.anyOf();
    if (this.token.kind) this.refuse(this.token.at, "should go on with and, or, or end");
    return truths;
  }

  private get token() {
    return this.tokens[this.next]!;
  }

  private anyOf(): Truths {
    let found = this.allOf();
    while (this.take("or")) found = joined(found, this.allOf(), Math.max);
    return found;
  }

  private allOf(): Truths {
    let found = this.one();
    while (this.take("and")) found = joined(found, this.one(), Math.min);
    return found;
  }

  private one(): Truths {
    if (++this.depth > MOST_NESTED) this.refuse(this.token.at, `has more than ${MOST_NESTED} parentheses in each other`);
    let found: Truths;
    if (this.take("not")) found = this.one().map((truth) => 2 - truth);
    else if (this.take("(")) {
      found = this.anyOf();
      this.need(")");
    } else found = this.compared();
    this.depth--;
    return found;
  }

  private compared(): Truths {
    this.began = this.token.at;
    const left = this.operand();
    if (this.take("is")) {
      const wanted = !this.take("not");
      this.need("null");
      return this.each((item) => 2 * Number((left.at(item) === null) === wanted));
    }
    const within = !this.take("not");
    if (this.take("in")) {
      const truths = this.membership(left);
      return within ? truths : truths.map((truth) => 2 - truth);
    }
    if (!within) this.refuse(this.token.at, "should go on with in");
    for (const [sign, holds] of Object.entries(COMPARED)) if (this.take(sign)) return this.holds(left, this.operand(), holds);
    if (left.kind === "text" || (left.constant && !left.truth)) {
      this.refuse(this.began, "has a text or a number alone, which should be compared, as in brand = 'x'");
    }
    return this.each((item) => (left.at(item) === null ? 1 : 2 * Number(left.at(item) !== 0)));
  }

  private membership(left: Operand): Truths {
    this.need("(");
    const operands = [this.operand()];
    while (this.take(",")) operands.push(this.operand());
    this.need(")");
    for (const operand of operands) this.compare(left, operand);
    const constants = new Set(operands.filter(({ constant }) => constant).map(({ at }) => at(0)));
    let truths = this.each((item) => (left.at(item) === null ? 1 : 2 * Number(constants.has(left.at(item)))));
    for (const operand of operands) {
      if (!operand.constant) truths = joined(truths, this.holds(left, operand, COMPARED["="]!), Math.max);
    }
    return truths;
  }

  private operand(): Operand {
    const { kind, text, at } = this.token;
    this.next += Number(kind > 0);
    const always = (value: number | string, truth = false): Operand => ({
      kind: typeof value === "number" ? "number" : "text",
      at: () => value,
      constant: true,
      truth,
    });
    const word = text.toLowerCase();
    if (kind === NUMBER) return always(Number(text));
    if (kind === TEXT) return always(text.slice(1, -1).replaceAll(text[0]! + text[0]!, text[0]!));
    if (kind === WORD && (word === "true" || word === "false")) return always(Number(word === "true"), true);
    if (kind === NAME || (kind === WORD && !WORDS.includes(word))) {
      const { kind, values } = this.column(text);
      return { kind, at: (item) => values[item]!, constant: false, truth: false };
    }
    return this.refuse(at, "should go on with a column, a number or a text");
  }

  private compare(left: Operand, right: Operand): void {
    if (left.kind !== right.kind && left.kind !== "none" && right.kind !== "none") {
      this.refuse(this.began, "compares a number with a text");
    }
  }

  private holds(left: Operand, right: Operand, compare: (order: number) => boolean): Truths {
    this.compare(left, right);
    return this.each((item) => {
      const [one, other] = [left.at(item), right.at(item)];
      return one === null || other === null ? 1 : 2 * Number(compare(orderOf(one, other)));
    });
  }

  private each(truth: (item: number) => number): Truths {
    return Uint8Array.from({ length: this.nItems }, (_, item) => truth(item));
  }

  private take(word: string): boolean {
    const { kind, text } = this.token;
    if (kind < WORD || text.toLowerCase() !== word) return false;
    this.next++;
    return true;
  }

  private need(word: string): void {
    if (!this.take(word)) this.refuse(this.token.at, `should go on with ${word}`);
  }

  private refuse(at: number, what: string, hint = ""): never {
    const rest = this.text.slice(at, at + 30);
    throw new InputError(`The condition '${this.text.slice(0, 100)}' ${what}, ${rest ? `at '${rest}'` : "at its end"}${hint}.`);
  }
}

function joined(one: Truths, other: Truths, both: (a: number, b: number) => number): Truths {
  return one.map((truth, item) => both(truth, other[item]!));
}
