import { MantineProvider } from "@mantine/core";
import { cleanup, fireEvent, render, screen, waitFor, within } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { Problem } from "../api/problem";
import type { Setting } from "../lib/settings";
import { ConfigEditor, type ConfigState, type Patch } from "./configEditor";

afterEach(() => {
  cleanup();
  vi.unstubAllGlobals();
});

const setting = (name: string, value: string): Setting => ({
  name,
  value,
  default: "1000",
  source: value === "1000" ? "default" : "topic",
  scope: "topic",
  type: "long",
  unit: "ms",
  min: 1,
  max: 100_000,
  allowed_values: [],
  doc: `About ${name}`,
});
const state = (etag: string, values: Record<string, string>): ConfigState => ({
  etag,
  items: Object.entries(values).map(([n, v]) => setting(n, v)),
});

function show(
  config: ConfigState,
  save: (patch: Patch, etag: string) => Promise<ConfigState>,
  reload: () => Promise<ConfigState>,
  reason: string | null = null,
) {
  vi.stubGlobal(
    "ResizeObserver",
    class {
      observe() {}
      unobserve() {}
      disconnect() {}
    },
  );
  render(
    <MantineProvider env="test">
      <ConfigEditor config={config} reason={reason} save={save} reload={reload} modified={false} onFilter={() => undefined} />
    </MantineProvider>,
  );
}

function edit(name: string, value: string) {
  fireEvent.click(screen.getByRole("button", { name: `Edit ${name}` }));
  fireEvent.change(screen.getByRole("textbox", { name }), { target: { value } });
}

test("saving one key sends that key alone, and the others stay staged", async () => {
  const save = vi.fn(async (_patch: Patch, _etag: string) => state("2", { "retention.ms": "2000", "segment.ms": "1000" }));
  show(state("1", { "retention.ms": "1000", "segment.ms": "1000" }), save, async () => state("1", {}));
  edit("retention.ms", "2000");
  edit("segment.ms", "3000");
  screen.getByText("2 changes are not saved yet");
  fireEvent.click(screen.getByRole("button", { name: "Save retention.ms" }));
  await screen.findByText("1 change is not saved yet");
  expect(save.mock.calls).toEqual([[{ set: { "retention.ms": "2000" } }, "1"]]);
  expect((screen.getByRole("textbox", { name: "segment.ms" }) as HTMLInputElement).value).toBe("3000");
});

test("a value out of range cannot be saved, and says its range", () => {
  show(state("1", { "retention.ms": "1000" }), vi.fn(), vi.fn());
  edit("retention.ms", "0");
  screen.getByText("At least 1");
  expect((screen.getByRole("button", { name: "Save retention.ms" }) as HTMLButtonElement).disabled).toBe(true);
});

test("who comes second sees the first's change beside theirs, and saves over it only knowingly", async () => {
  const now = state("2", { "retention.ms": "5000", "segment.ms": "7000" });
  const save = vi.fn(async (_patch: Patch, etag: string) => {
    if (etag === "1") throw new Problem(412, "etag-mismatch", "changed");
    return state("3", { "retention.ms": "2000", "segment.ms": "7000" });
  });
  show(state("1", { "retention.ms": "1000", "segment.ms": "1000" }), save, async () => now);
  edit("retention.ms", "2000");
  fireEvent.click(screen.getByRole("button", { name: "Save retention.ms" }));
  const dialog = await screen.findByRole("dialog");
  const rows = within(dialog)
    .getAllByRole("row")
    .slice(1)
    .map((r) =>
      within(r)
        .getAllByRole("cell")
        .map((c) => c.textContent),
    );
  expect(rows).toEqual([
    ["retention.ms", "1000", "5000", "2000"],
    ["segment.ms", "1000", "7000", "not touched"],
  ]);
  expect(save).toHaveBeenCalledTimes(1);
  fireEvent.click(within(dialog).getByRole("button", { name: "Save mine over it" }));
  await waitFor(() => expect(save.mock.calls.at(-1)).toEqual([{ set: { "retention.ms": "2000" } }, "2"]));
});

test("without the right nothing can be edited, and every button says why", () => {
  show(state("1", { "retention.ms": "2000" }), vi.fn(), vi.fn(), "no right");
  for (const name of ["Edit retention.ms", "Reset to default"]) {
    const button = screen.getByRole("button", { name });
    fireEvent.click(button);
    expect(button.getAttribute("data-reason")).toBe("no right");
  }
  expect(screen.queryByRole("textbox", { name: "retention.ms" })).toBeNull();
});
