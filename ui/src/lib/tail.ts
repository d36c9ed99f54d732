import type { Rec } from "../api/records";

export type TailState = "connecting" | "open" | "waiting" | "ended";

export interface TailEvents {
  state(state: TailState, why?: string): void;
  record(record: Rec): void;
}

export interface TailAsk {
  url: string;
  topic: string;
  q?: string;
  within?: string;
  previewBytes: number;
}

/** Close codes after which coming again is of no use: bad frame, login over, not allowed, no such topic. */
const final = new Set([4400, 4401, 4403, 4404]);
const pauses = [500, 1000, 2000, 5000, 10_000];

/**
 * A live tail over a WebSocket. It comes again after a break, from where it was: no record
 * that came while it was away is lost or shown twice. close() ends it.
 */
export class LiveTail {
  private socket: WebSocket | null = null;
  private readonly positions = new Map<number, number>();
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;
  private why = "";

  constructor(
    private readonly ask: TailAsk,
    private readonly events: TailEvents,
  ) {}

  open(): void {
    this.closed = false;
    this.events.state("connecting");
    const socket = new WebSocket(this.ask.url, "tidewire.v1.json");
    this.socket = socket;
    socket.onopen = () => socket.send(JSON.stringify(this.subscription()));
    socket.onmessage = (e) => this.frame(JSON.parse(String(e.data)));
    socket.onclose = (e) => {
      if (this.closed || this.socket !== socket) return;
      if (final.has(e.code)) {
        this.events.state("ended", this.why || e.reason || String(e.code));
        return;
      }
      this.events.state("waiting", this.why);
      this.timer = setTimeout(() => this.open(), pauses[Math.min(this.failures++, pauses.length - 1)]);
    };
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close(1000);
    this.socket = null;
  }

  subscription(): Record<string, unknown> {
    const { topic, q, within, previewBytes } = this.ask;
    return {
      op: "subscribe",
      topics: [topic],
      from: "latest",
      encoding: "text",
      preview_bytes: previewBytes,
      ...(q ? { q } : {}),
      ...(q && within ? { q_in: within.split(",") } : {}),
      ...(this.positions.size > 0
        ? { partitions: [...this.positions].map(([partition, next_offset]) => ({ topic, partition, next_offset })) }
        : {}),
    };
  }

  private frame(frame: {
    op: string;
    records?: Rec[];
    partitions?: { partition: number; next_offset: number }[];
    problem?: { detail: string };
  }): void {
    switch (frame.op) {
      case "subscribed":
        this.failures = 0;
        this.why = "";
        this.events.state("open");
        break;
      case "assigned":
        for (const p of frame.partitions ?? []) this.positions.set(p.partition, p.next_offset);
        break;
      case "records":
        for (const record of frame.records ?? []) {
          this.positions.set(record.partition, record.offset + 1);
          this.events.record(record);
        }
        break;
      case "error":
        this.why = frame.problem?.detail ?? "";
        break;
    }
  }
}
