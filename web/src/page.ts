/** The demo page: search, rate, see the list and why. After loading, nothing can be sent. */
import { Attributes, type ListOptions, load, type Model } from "./hushrec.js";

const KEPT = "hushrec ratings";
const LISTED = 10;
const FOUND = 5;
const MOST_WAITED = 3000;

/** The policy after the model is loaded: no network (docs/guides/device-security.md). */
const NOTHING = [
  "default-src 'none'", "script-src 'none'", "style-src 'none'", "img-src 'none'", "font-src 'none'",
  "connect-src 'none'", "media-src 'none'", "object-src 'none'", "frame-src 'none'", "child-src 'none'",
  "worker-src 'none'", "manifest-src 'none'", "form-action 'none'", "base-uri 'none'", "webrtc 'block'",
].join("; ");

const get = <E extends HTMLElement = HTMLElement>(id: string) => document.getElementById(id) as E;

function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  properties: Partial<HTMLElementTagNameMap[K]> = {},
  ...inside: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...inside);
  return element;
}

async function start(): Promise<void> {
  const { model: address, titles: named, rules: ruled } = document.body.dataset;
  get("status").textContent = "Loading the model …";
  try {
    const [model, titles, rules] = await Promise.all([
      load(new URL(address ?? "model.hush", document.baseURI)),
      json<Record<string, string>>(named),
      json<ListOptions & { attributes: Record<string, unknown[]> }>(ruled),
      keepPage(),
    ]);
    lock();
    new Page(model, titles ?? {}, rules && { ...rules, attributes: new Attributes(rules.attributes, model.items) });
  } catch (error) {
    get("status").textContent = (error as Error).message;
    get("status").classList.add("failed");
  }
}

async function json<T>(file: string | undefined): Promise<T | undefined> {
  if (!file) return undefined;
  const found = await fetch(new URL(file, document.baseURI));
  if (!found.ok) throw new Error(`${file} cannot be fetched (${found.status}).`);
  return (await found.json()) as T;
}

/** Keeps the page's files for use without a network; the page works without it. */
async function keepPage(): Promise<void> {
  const late = new Promise((done) => setTimeout(done, MOST_WAITED));
  const kept = navigator.serviceWorker?.register("service-worker.js").then(() => navigator.serviceWorker.ready);
  await Promise.race([kept, late]).catch(() => {});
}

/** Sets the second policy, and counts requests since. */
function lock(): void {
  document.head.append(make("meta", { httpEquiv: "Content-Security-Policy", content: NOTHING }));
  let [requests, blocked] = [0, 0];
  const show = () => {
    get("requests").textContent = String(requests);
    get("blocked").textContent = blocked ? `, ${blocked} blocked` : "";
  };
  new PerformanceObserver((list) => {
    requests += list.getEntries().length;
    show();
  }).observe({ entryTypes: ["resource"] });
  document.addEventListener("securitypolicyviolation", () => {
    blocked++;
    show();
  });
  show();
}

class Page {
  private readonly ratings = new Map<string, number>();
  private readonly grades: number[];
  /** Ids, and their titles as they are searched. */
  private readonly names: [string, string][];

  constructor(
    private readonly model: Model,
    private readonly titles: Readonly<Record<string, string>>,
    private readonly rules: ListOptions = {},
  ) {
    const { low, high, likes } = model.domain;
    const steps = Number.isInteger(high - low) && high - low <= 10 ? high - low : 4;
    this.grades = likes ? [1] : Array.from({ length: steps + 1 }, (_, k) => low + (k * (high - low)) / steps);
    this.names = Object.entries(titles).map(([item, title]) => [item, title.toLowerCase()]);
    this.recall();
    this.tellPrivacy();
    get("search").oninput = () => this.find();
    get("keep").onchange = () => this.keep();
    get("forget").onclick = () => this.forget();
    get("status").textContent = `Ready: ${model.items.length.toLocaleString()} items. Nothing you do here is sent.`;
    for (const fieldset of document.querySelectorAll("fieldset")) fieldset.disabled = false;
    document.body.dataset.state = "ready";
    this.show("");
  }

  private title(item: string): string {
    return this.titles[item] ?? item;
  }

  private find(): void {
    const text = get<HTMLInputElement>("search").value.trim();
    const found = this.names.length ? this.byTitle(text.toLowerCase()) : this.model.items.search(text, FOUND);
    get("found").replaceChildren(...found.map((item) => make("li", {}, this.grading(item, "found"))));
    get("found-status").textContent = !text ? "" : found.length < FOUND ? `${found.length || "No"} found` : `The first ${FOUND} found`;
  }

  private byTitle(text: string): string[] {
    const found: string[] = [];
    for (const [item, title] of text ? this.names : []) {
      if (found.length === FOUND) break;
      if (title.includes(text) && this.model.items.has(item)) found.push(item);
    }
    return found;
  }

  private grading(item: string, place: string): HTMLElement {
    const set = make("fieldset", { className: "grades" }, make("legend", {}, this.title(item)));
    for (const grade of this.grades) {
      const input = make("input", { type: "radio", name: `${place} ${item}`, value: String(grade) });
      input.checked = this.ratings.get(item) === grade;
      input.onchange = () => this.rate(item, grade);
      set.append(make("label", {}, input, make("span", {}, this.model.domain.likes ? "♥ I like it" : String(+grade.toFixed(2)))));
    }
    return set;
  }

  private rate(item: string, grade: number): void {
    this.ratings.set(item, grade);
    this.keep();
    this.show(`${this.title(item)} rated.`);
  }

  private remove(item: string): void {
    this.ratings.delete(item);
    this.keep();
    this.find();
    this.show(`${this.title(item)} removed.`);
    get("search").focus();
  }

  private show(what: string): void {
    const own = [...this.ratings].map(([item, grade]) => {
      const remove = make("button", { type: "button", onclick: () => this.remove(item) }, "Remove");
      remove.setAttribute("aria-label", `Remove ${this.title(item)}`);
      const text = this.model.domain.likes ? "♥" : String(+grade.toFixed(2));
      return make("li", {}, make("span", {}, this.title(item)), make("b", {}, text), remove);
    });
    get("rated").replaceChildren(...own);
    get("none-rated").hidden = own.length > 0;
    const began = performance.now();
    const list = this.model.recommend(this.ratings, { ...this.rules, n: LISTED });
    const took = performance.now() - began;
    get("list").replaceChildren(...list.map(({ item }) => make("li", {}, make("span", {}, this.title(item)), this.why(item))));
    get("took").textContent = `Computed on this device in ${took < 1 ? "less than 1" : Math.round(took)} ms.`;
    if (what) get("done").textContent = `${what} The list has ${list.length} items.`;
  }

  private why(item: string): Node {
    const because = this.model.explain(this.ratings, item).because.filter(({ moved }) => moved > 0).slice(0, 3);
    if (!because.length) return make("small", {}, "liked by many");
    return make("small", {}, `because of ${because.map((each) => this.title(each.item)).join(", ")}`);
  }

  private tellPrivacy(): void {
    const { private: isPrivate, epsilon, delta, unit, relation, public_ratings: published, joint_dp: promise } = this.model.privacy;
    const except = published ? "That holds for everybody but those who have published their ratings. " : "";
    const without = unit === "user" ? "any one person's private ratings" : "any one rating";
    get("promise").textContent = isPrivate
      ? `This model was trained with noise. Without ${without}, no result becomes more than e^epsilon times as likely or unlikely, up to delta (epsilon = ${epsilon} at delta = ${delta}, unit: ${unit}, relation: ${relation}). A smaller epsilon is a stronger limit. ${except}`
      : "This model gives no privacy to the people whose ratings it was trained on. ";
    get("statement").textContent = `${promise}\n\n${JSON.stringify(this.model.privacy, null, 2)}`;
  }

  private keep(): void {
    try {
      if (get<HTMLInputElement>("keep").checked) localStorage.setItem(KEPT, JSON.stringify([...this.ratings]));
      else localStorage.removeItem(KEPT);
    } catch {
      get("done").textContent = "This browser keeps nothing for this page.";
    }
  }

  private recall(): void {
    try {
      const kept = JSON.parse(localStorage.getItem(KEPT) ?? "null") as [string, number][] | null;
      get<HTMLInputElement>("keep").checked = kept !== null;
      for (const [item, grade] of this.model.usable(kept ?? []).ratings) if (grade !== null) this.ratings.set(item, grade);
    } catch {
      // nothing is kept that could be read
    }
  }

  private forget(): void {
    this.ratings.clear();
    get<HTMLInputElement>("keep").checked = false;
    this.keep();
    this.find();
    this.show("Everything is forgotten.");
  }
}

void start();
