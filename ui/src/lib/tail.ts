import type { Rec } from "../api/records";

/**
 * connecting, open: as they say. waiting: the connection broke, and comes again by itself.
 * ended: the node refused it; it is asked again now and then, since a right may come back.
 */
export type TailState = "connecting" | "open" | "waiting" | "ended";

export interface TailEvents {
  state(state: TailState, why?: string): void;
  record(record: Rec): void;
  /** The session is over: resolves when somebody has logged in again, rejects when nobody will. */
  loggedIn(): Promise<void>;
}

export interface TailAsk {
  /** The WebSocket's address. */
  url: string;
  /** The same records as a stream of events, where something between does not let WebSockets through. */
  stream: string;
  topic: string;
  q?: string;
  within?: string;
  previewBytes: number;
}

/** Close codes of a refusal: bad frame, not allowed, no such topic. */
const refusals = new Set([4400, 4403, 4404]);
const loginOver = 4401;
const pauses = [500, 1000, 2000, 5000, 10_000];
/** After so many WebSockets that never opened the stream of events is taken. */
const patience = 2;

/**
 * A live tail over a WebSocket. It comes again after a break, from where it was: no record
 * that came while it was away is lost or shown twice. close() ends it.
 */
export class LiveTail {
  private socket: WebSocket | null = null;
  private events_: EventSource | null = null;
  private readonly positions = new Map<number, number>();
  private failures = 0;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;
  private why = "";
  private state: TailState = "connecting";

  constructor(
    private readonly ask: TailAsk,
    private readonly events: TailEvents,
  ) {}

  open(): void {
    this.closed = false;
    // A refusal stays in sight until it is none any more.
    if (this.state !== "ended") this.tell("connecting");
    // What has positions of a WebSocket goes on by WebSocket alone, which loses nothing.
    if (this.failures >= patience && this.positions.size === 0) this.openStream();
    else this.openSocket();
  }

  private openSocket(): void {
    const socket = new WebSocket(this.ask.url, "tidewire.v1.json");
    this.socket = socket;
    socket.onopen = () => socket.send(JSON.stringify(this.subscription()));
    socket.onmessage = (e) => this.frame(JSON.parse(String(e.data)));
    socket.onclose = (e) => {
      if (this.closed || this.socket !== socket) return;
      if (e.code === loginOver) this.waitForLogin();
      else if (refusals.has(e.code)) {
        this.tell("ended", this.why || e.reason || String(e.code));
        this.again(pauses.length);
      } else {
        this.tell("waiting", this.why);
        this.again(this.failures++);
      }
    };
  }

  private openStream(): void {
    const source = new EventSource(this.ask.stream);
    this.events_ = source;
    source.onopen = () => this.tell("open");
    source.addEventListener("record", (e) => this.events.record(JSON.parse(String((e as MessageEvent).data)) as Rec));
    source.addEventListener("problem", (e) => {
      source.close();
      this.tell("ended", (JSON.parse(String((e as MessageEvent).data)) as { detail?: string }).detail);
      this.again(pauses.length);
    });
    source.onerror = () => {
      if (this.closed || this.events_ !== source) return;
      this.tell("waiting");
      // The browser itself comes again, with the id of the last event, unless it was refused.
      if (source.readyState === EventSource.CLOSED) this.again(this.failures++);
    };
  }

  private waitForLogin(): void {
    this.tell("waiting", this.why);
    this.events.loggedIn().then(
      () => {
        if (!this.closed) this.open();
      },
      () => this.tell("ended", this.why),
    );
  }

  private again(failures: number): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), pauses[Math.min(failures, pauses.length - 1)]);
  }

  private tell(state: TailState, why?: string): void {
    this.state = state;
    this.events.state(state, why);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close(1000);
    this.socket = null;
    this.events_?.close();
    this.events_ = null;
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
        this.tell("open");
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
