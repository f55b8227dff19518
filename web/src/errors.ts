/** A file that is no model, is damaged, or is of another version; one sentence. */
export class ModelFileError extends Error {
  override name = "ModelFileError";
}

/** Something that was asked for and cannot be done; one sentence that says why. */
export class InputError extends Error {
  override name = "InputError";
}
