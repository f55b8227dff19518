/** Ridge regressions of one user's ratings on the factors of their items. */

/** The Cholesky factor of a symmetric positive matrix. */
export class Cholesky {
  /** @param matrix row by row, size x size; its lower triangle is read, and overwritten. */
  constructor(
    private readonly matrix: Float64Array,
    private readonly size: number,
  ) {
    const least = size * Number.EPSILON;
    for (let a = 0; a < size; a++) {
      const floor = Math.max(least * matrix[a * size + a]!, 0);
      for (let b = 0; b <= a; b++) {
        let rest = matrix[a * size + b]!;
        for (let k = 0; k < b; k++) rest -= matrix[a * size + k]! * matrix[b * size + k]!;
        if (b < a) matrix[a * size + b] = rest * matrix[b * size + b]!;
        else matrix[a * size + a] = rest > floor ? 1 / Math.sqrt(rest) : 0; // no pivot: no such direction
      }
    }
  }

  solve(vector: Float64Array): Float64Array {
    const { matrix, size } = this;
    const solved = Float64Array.from(vector);
    for (let a = 0; a < size; a++) {
      for (let k = 0; k < a; k++) solved[a]! -= matrix[a * size + k]! * solved[k]!;
      solved[a]! *= matrix[a * size + a]!;
    }
    for (let a = size - 1; a >= 0; a--) {
      solved[a]! *= matrix[a * size + a]!;
      for (let k = 0; k < a; k++) solved[k]! -= matrix[a * size + k]! * solved[a]!;
    }
    return solved;
  }
}

/** Weighted sum of the rows' outer products, with a ridge on the diagonal. */
export function normalMatrix(rows: Float64Array[], ridge: Float64Array, weight = 1): Float64Array {
  const size = ridge.length;
  const matrix = new Float64Array(size * size);
  for (const row of rows) {
    for (let a = 0; a < size; a++) {
      for (let b = 0; b <= a; b++) matrix[a * size + b]! += weight * row[a]! * row[b]!;
    }
  }
  for (let a = 0; a < size; a++) matrix[a * size + a]! += ridge[a]!;
  return matrix;
}

export function combined(rows: Float64Array[], weights: ArrayLike<number>, size: number): Float64Array {
  const sum = new Float64Array(size);
  rows.forEach((row, i) => {
    for (let a = 0; a < size; a++) sum[a]! += weights[i]! * row[a]!;
  });
  return sum;
}

export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let k = 0; k < a.length; k++) sum += a[k]! * b[k]!;
  return sum;
}
