/** Private recommendations on the user's own device. */
export type { Id, Catalogue } from "./catalogue.js";
export { InputError, ModelFileError } from "./errors.js";
export type { UserState } from "./foldin.js";
export { load, type LoadOptions } from "./load.js";
export { type Explanation, type ListOptions, Model, type Recommended, type Recommender, type Scored, type Similar } from "./model.js";
export { Attributes, type Rules } from "./rules.js";
export type { Domain, Rated, Rating, Ratings, Refused, Time } from "./row.js";
