/** Fetching a model whole, and keeping it on the device. */
import { ModelFileError } from "./errors.js";
import { Model } from "./model.js";

export interface LoadOptions {
  /** The digest that the model must have; a kept copy of it is read without a request. */
  digest?: string;
  /** Keep no copy on the device. */
  keep?: boolean;
}

const STORE = "hushrec";

/**
 * Load a model: a kept copy that is current, or without a network; else the whole file, so no request shows a user's items.
 *
 * @throws ModelFileError if it cannot be fetched, is damaged, or cannot be served on a device.
 */
export async function load(url: string | URL, { digest, keep = true }: LoadOptions = {}): Promise<Model> {
  const address = new URL(url, globalThis.location?.href).href;
  const store = keep ? await globalThis.caches?.open(STORE).catch(() => undefined) : undefined;
  const kept = await store?.match(address);
  const read = async (response: Response) => Model.read(new Uint8Array(await response.arrayBuffer()));
  if (kept && digest && kept.headers.get("x-digest") === digest) {
    const model = await read(kept.clone()).catch(() => undefined);
    if (model?.digest === digest) return model;
  }
  const ours = new URL(address).origin === globalThis.location?.origin; // another's may not allow the header
  const tag = ours && kept?.headers.get("etag");
  const found = await fetch(address, { cache: "no-store", headers: tag ? { "if-none-match": tag } : {} }).catch(() => undefined);
  if (kept && (!found || found.status === 304 || found.status >= 500)) {
    const model = await read(kept).catch(() => undefined);
    if (model && (!digest || model.digest === digest)) return model;
    await store?.delete(address);
    return load(url, { keep, ...(digest && { digest }) });
  }
  if (!found) throw new ModelFileError(`The model at ${address} cannot be fetched; check the network and the address.`);
  if (!found.ok) throw new ModelFileError(`The model at ${address} cannot be fetched (${found.status}); check the address.`);
  const bytes = new Uint8Array(await found.arrayBuffer());
  const model = await Model.read(bytes);
  if (digest && model.digest !== digest) {
    throw new ModelFileError(`The model at ${address} has the digest ${model.digest}, not the one asked for; ask for it by its own.`);
  }
  const headers = { "x-digest": model.digest, etag: found.headers.get("etag") ?? "" };
  void store?.put(address, new Response(bytes as Uint8Array<ArrayBuffer>, { headers })).catch(() => {}); // no room
  return model;
}
