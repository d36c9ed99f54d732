import { MantineProvider } from "@mantine/core";
import { cleanup, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import { FieldText } from "./fieldText";
import { GatedButton, useMay } from "./gate";

afterEach(cleanup);

function Gated({ actions, onClick }: { actions?: string[]; onClick: () => void }) {
  const may = useMay(actions, "topic:flights");
  return (
    <GatedButton reason={may("delete")} onClick={onClick}>
      Delete
    </GatedButton>
  );
}

test("without the right a button is seen, says why, and does nothing", () => {
  const act = vi.fn();
  render(
    <MantineProvider>
      <Gated actions={["read"]} onClick={act} />
    </MantineProvider>,
  );
  const button = screen.getByRole("button", { name: "Delete" });
  expect(button.getAttribute("aria-disabled")).toBe("true");
  expect(button.getAttribute("aria-description")).toContain("delete on topic:flights");
  fireEvent.click(button);
  expect(act).not.toHaveBeenCalled();
});

test("with the right, or while nothing is known of it, it acts", () => {
  const act = vi.fn();
  for (const actions of [["delete"], undefined]) {
    render(
      <MantineProvider>
        <Gated actions={actions} onClick={act} />
      </MantineProvider>,
    );
    fireEvent.click(screen.getByRole("button", { name: "Delete" }));
    cleanup();
  }
  expect(act).toHaveBeenCalledTimes(2);
});

test("a value with markup is shown as text", () => {
  const { container } = render(<FieldText field={{ value: "<b>x</b><script>1</script>", encoding: "text" }} decoder="auto" />);
  expect(container.textContent).toContain("<b>x</b><script>1</script>");
  expect(container.querySelector("b, script")).toBeNull();
});
