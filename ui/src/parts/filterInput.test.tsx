import { MantineProvider } from "@mantine/core";
import { act, cleanup, fireEvent, render, screen } from "@testing-library/react";
import { useState } from "react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { FilterInput } from "./filterInput";

beforeEach(() => vi.useFakeTimers());
afterEach(() => {
  cleanup();
  vi.useRealTimers();
});

const asked = vi.fn();
let set: (value: string) => void = () => {};

/** A page that takes the filter over some time after it was asked to, as an address does. */
function Page({ late }: { late: number }) {
  const [value, setValue] = useState("");
  set = setValue;
  return (
    <MantineProvider>
      <FilterInput
        label="Search"
        value={value || undefined}
        onAsk={(q) => {
          asked(q);
          setTimeout(() => setValue(q ?? ""), late);
        }}
      />
    </MantineProvider>
  );
}

const field = () => screen.getByRole<HTMLInputElement>("textbox", { name: "Search" });
const type = (text: string) => fireEvent.change(field(), { target: { value: text } });
const pass = (ms: number) => act(() => vi.advanceTimersByTime(ms));

test("the first letter is asked for at once, what follows quickly once, and nothing typed is lost", () => {
  asked.mockClear();
  render(<Page late={30} />);
  pass(1000);
  type("a");
  expect(asked.mock.calls).toEqual([["a"]]);
  pass(20);
  type("ab");
  pass(20); // the page now has "a"
  expect(field().value).toBe("ab");
  type("abc");
  pass(79);
  expect(asked.mock.calls).toEqual([["a"]]);
  pass(1);
  expect(asked.mock.calls).toEqual([["a"], ["abc"]]);
  pass(100);
  expect(field().value).toBe("abc");
  type("");
  expect(asked.mock.lastCall).toEqual([undefined]);
});

test("a filter that changes from outside is shown", () => {
  render(<Page late={30} />);
  pass(1000);
  type("flights");
  pass(100);
  act(() => set("audit"));
  expect(field().value).toBe("audit");
  act(() => set(""));
  expect(field().value).toBe("");
});

test("a page that goes away is not asked", () => {
  asked.mockClear();
  const { unmount } = render(<Page late={30} />);
  pass(1000);
  type("a");
  type("ab");
  unmount();
  pass(1000);
  expect(asked.mock.calls).toEqual([["a"]]);
});
