/** A file that is no model, is damaged, or is of another version. */
export class ModelFileError extends Error {
  override name = "ModelFileError";
}

/** A request that cannot be answered, and why. */
export class InputError extends Error {
  override name = "InputError";
}
