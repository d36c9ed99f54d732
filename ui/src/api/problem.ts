import type { components } from "./schema.gen";

export type ProblemBody = components["schemas"]["Problem"];

/** A refusal of the node, or a failure to reach it (status 0, code "unreachable"). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly body: Partial<ProblemBody> = {},
  ) {
    super(detail);
    this.name = "Problem";
  }

  /** What a field of the form got wrong, by its JSON pointer (/name) or its query parameter. */
  at(pointer: string): string | undefined {
    return this.body.errors?.find((e) => e.pointer === pointer)?.detail;
  }
}

export function problemOf(status: number, body: unknown): Problem {
  if (typeof body === "object" && body !== null && "code" in body) {
    const known = body as Partial<ProblemBody>;
    return new Problem(status, known.code ?? "internal", known.detail ?? known.title ?? "", known);
  }
  return new Problem(status, "internal", `HTTP ${status}`);
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof DOMException && error.name === "AbortError") return new Problem(0, "stopped", error.message);
  return new Problem(0, "failed", error instanceof Error ? error.message : String(error));
}
