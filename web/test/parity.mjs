// The client against the vectors that Python wrote; runs in Node, in a page and in a worker.
const CLOSE = 1e-6;
const LISTED = 20;

/** Faults, the largest difference of a score, and how many histories were checked. */
export async function parity({ Attributes, Model, InputError, ModelFileError }, vectors) {
  const faults = [];
  let [largest, checked] = [0, 0];
  const differ = (found, expected) => {
    if (found.length !== expected.length) return Infinity;
    const most = found.reduce((m, x, i) => Math.max(m, Math.abs(x - expected[i])), 0);
    largest = Math.max(largest, most);
    return most;
  };
  for (const { name, file, histories, similar, next, directions, digest } of vectors.models) {
    const model = await Model.read(Uint8Array.from(atob(file), (c) => c.charCodeAt(0)));
    const [ids, places] = [Array.from({ length: model.items.length }, (_, k) => model.items.at(k)), (list) => list.map(({ item }) => model.items.indexOf(item))];
    if ((model.directions ?? null) !== directions || model.digest !== digest) faults.push(`${name}: other directions or digest`);
    if (ids.some((id, k) => model.items.indexOf(id) !== k)) faults.push(`${name}: an id is not found by its text`);
    for (const [history, expected] of Object.entries(histories)) {
      const where = `${name}, ${history}`;
      checked++;
      const refusal = thrown(() => model.recommend(expected.ratings));
      const named = expected.refused === null ? !refusal : refusal instanceof InputError && refusal.message.includes(`'${expected.refused}'`);
      if (!named) faults.push(`${where}: ${refusal}, not a refusal of ${expected.refused}`);
      const { ratings } = model.usable(expected.ratings);
      const ranked = model.recommend(ratings, { n: ids.length, exclude: [] });
      const listed = places(model.recommend(ratings, { n: LISTED }));
      if (differ(model.predict(ratings, ids), expected.predicted) > CLOSE) faults.push(`${where}: predictions differ`);
      if (differ(ranked.map(({ score }) => score), expected.scores) > CLOSE) faults.push(`${where}: scores differ`);
      if (ranked.some(({ score }, k) => k && score > ranked[k - 1].score)) faults.push(`${where}: scores rise`);
      const rated = ranked.map(({ rating }) => rating);
      if (model.scores === "ratings" ? rated.join() !== model.predict(ratings, ranked.map(({ item }) => item)).join() : rated.some((each) => each !== undefined)) faults.push(`${where}: ratings are no predictions`);
      for (const [at, score, base, moved] of expected.explained) {
        const found = model.explain(ratings, ids[at]);
        const because = found.because.map((each) => [model.items.indexOf(each.item), each.moved]).sort(([a], [b]) => a - b);
        const same = because.map(([own]) => own).join() === moved.map(([own]) => own).join();
        if (!same || differ([found.score, found.base, ...because.map(([, by]) => by)], [score, base, ...moved.map(([, by]) => by)]) > CLOSE) faults.push(`${where}: ${ids[at]} is explained otherwise`);
      }
      if (places(ranked).join() !== expected.ranked.join()) faults.push(`${where}: ranked otherwise`);
      if (listed.join() !== expected.list.join()) faults.push(`${where}: another list`);
    }
    if (vectors.rules[name]) {
      const { table, ratings, matching, refused, lists, basket } = vectors.rules[name];
      const attributes = new Attributes(table, model.items);
      for (const [condition, expected] of Object.entries(matching)) {
        const found = attributes.matching(condition).flatMap((match, item) => (match ? [item] : []));
        if (found.join() !== expected.join()) faults.push(`${name}: ${condition} is true of ${found}, not ${expected}`);
      }
      for (const [condition, words] of Object.entries(refused)) {
        const refusal = thrown(() => attributes.matching(condition));
        if (!(refusal instanceof InputError && refusal.message.includes(words))) faults.push(`${name}: ${condition}: ${refusal}, not ${words}`);
      }
      for (const { options: { at_most: atMost, ...options }, list, scores } of lists) {
        const found = model.recommend(ratings, { n: LISTED, attributes, ...(atMost && { atMost }), ...options });
        if (places(found).join() !== list.join() || differ(found.map(({ score }) => score), scores) > CLOSE) faults.push(`${name}: other lists by ${JSON.stringify(options)}`);
      }
      if (basket.items && places(model.similarItems([ids[0], ids[5]], 5)).join() !== basket.items.join()) faults.push(`${name}: other items similar to two`);
      if (attributes.title(0) !== "The 0" || attributes.title(ids.length - 1) !== undefined) faults.push(`${name}: other titles`);
    }
    for (const [at, { ratings, list, scores }] of next.entries()) {
      const found = model.recommend(ratings, { n: LISTED, next: true });
      if (places(found).join() !== list.join() || differ(found.map(({ score }) => score), scores) > CLOSE) faults.push(`${name}: another list of what comes next, ${at}`);
    }
    for (const item of [{ [ids[0]]: model.domain.high }, new Map([[ids[0], model.domain.high]])]) {
      if (!(thrown(() => model.recommend(item, { next: true })) instanceof InputError)) faults.push(`${name}: a mapping has an order`);
    }
    for (const { item, refused, items, scores, by } of similar) {
      const refusal = thrown(() => model.similarItems(ids[item], 5));
      const which = refusal && (refusal.message.includes(`'${ids[item]}'`) ? "this one" : "all");
      if (which !== refused) faults.push(`${name}: similar to ${item}: ${refusal}, not a refusal of ${refused}`);
      if (refusal || refused) continue;
      const found = model.similarItems(ids[item], 5);
      const tied = (place, k) => place === items[k] || Math.abs(scores[k] - (scores[items.indexOf(place)] ?? scores.at(-1))) < 1e-9;
      if (differ(found.map(({ score }) => score), scores) > CLOSE || !places(found).every(tied) || found.some((each) => each.by.join() !== by.join())) faults.push(`${name}: other items similar to ${item}`);
    }
  }
  const items = (await Model.read(Uint8Array.from(atob(vectors.models[0].file), (c) => c.charCodeAt(0)))).items;
  for (const { table, answers } of vectors.random) {
    const attributes = new Attributes(table, items);
    for (const [condition, expected] of Object.entries(answers)) {
      const refusal = thrown(() => attributes.matching(condition));
      const found = refusal ? refusal.message : attributes.matching(condition).flatMap((match, item) => (match ? [item] : []));
      const same = Array.isArray(expected) ? found.join?.() === expected.join() : refusal instanceof InputError && found.includes(expected);
      if (!same) faults.push(`random condition ${JSON.stringify(condition)}: ${found}, not ${expected}`);
    }
  }
  const refusal = await Model.read(Uint8Array.from(atob(vectors.refused.file), (c) => c.charCodeAt(0))).catch((error) => error);
  if (!(refusal instanceof ModelFileError && refusal.message.includes(vectors.refused.name))) faults.push(`not refused by name: ${refusal}`);
  return { faults, largest, checked };
}

function thrown(call) {
  try {
    call();
  } catch (error) {
    return error;
  }
}
