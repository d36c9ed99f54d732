/** The newest items of a stream, a bounded number of them. */
export class Ring<T> {
  private items: T[] = [];
  private start = 0;
  /** How many items ever came. */
  total = 0;

  constructor(readonly capacity: number) {}

  push(item: T): void {
    this.total++;
    if (this.items.length < this.capacity) {
      this.items.push(item);
      return;
    }
    this.items[this.start] = item;
    this.start = (this.start + 1) % this.capacity;
  }

  get length(): number {
    return this.items.length;
  }

  /** A copy, oldest first. */
  toArray(): T[] {
    return [...this.items.slice(this.start), ...this.items.slice(0, this.start)];
  }

  clear(): void {
    this.items = [];
    this.start = 0;
  }
}
