/** Positions by 32-bit hash, sorted by the upper half, which builds fast. */
export class Hashes {
  private readonly starts = new Int32Array((1 << 16) + 1);

  /** @param hashes @param items of each, ascending; both are overwritten. */
  constructor(
    private hashes: Uint32Array,
    private items: Int32Array,
  ) {
    this.sortBy(16);
    this.sortBy(24);
    for (let i = 0; i < hashes.length; i++) this.starts[(this.hashes[i]! >>> 16) + 1]!++;
    for (let bucket = 0; bucket < 1 << 16; bucket++) this.starts[bucket + 1]! += this.starts[bucket]!;
  }

  /** The first item of this hash that matches; -1 if none does. */
  find(hash: number, isIt: (item: number) => boolean): number {
    const { hashes, items, starts } = this;
    const end = starts[(hash >>> 16) + 1]!;
    for (let i = starts[hash >>> 16]!; i < end; i++) if (hashes[i] === hash && isIt(items[i]!)) return items[i]!;
    return -1;
  }

  /** An item that equals an earlier one; -1 if none does. */
  twin(same: (one: number, other: number) => boolean): number {
    const { hashes, items, starts } = this;
    for (let bucket = 0; bucket < 1 << 16; bucket++) {
      const begin = starts[bucket]!;
      for (let i = begin + 1; i < starts[bucket + 1]!; i++) {
        const hash = hashes[i]!;
        for (let j = begin; j < i; j++) if (hashes[j] === hash && same(items[i]!, items[j]!)) return items[i]!;
      }
    }
    return -1;
  }

  /** A stable pass of a radix sort, by eight bits. */
  private sortBy(shift: number): void {
    const { hashes, items } = this;
    const ends = new Int32Array(257);
    for (let i = 0; i < hashes.length; i++) ends[((hashes[i]! >>> shift) & 255) + 1]!++;
    for (let part = 0; part < 256; part++) ends[part + 1]! += ends[part]!;
    const [sorted, moved] = [new Uint32Array(hashes.length), new Int32Array(hashes.length)];
    for (let i = 0; i < hashes.length; i++) {
      const to = ends[(hashes[i]! >>> shift) & 255]!++;
      sorted[to] = hashes[i]!;
      moved[to] = items[i]!;
    }
    this.hashes = sorted;
    this.items = moved;
  }
}
