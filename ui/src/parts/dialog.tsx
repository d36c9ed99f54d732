import { Button, Group, Modal, type ModalProps, Stack, Text } from "@mantine/core";
import { type ReactNode, useEffect, useRef, useState } from "react";
import { useT } from "../i18n";

/** What had the focus when each open dialog was opened, the way back from it first. */
const open: HTMLElement[][] = [];

/** What opens a dialog now: what has the focus, or the button of the menu that has it. */
function opener(): HTMLElement[] {
  const e = document.activeElement;
  if (!(e instanceof HTMLElement) || e === document.body) return [];
  const menu = e.closest("[role=menu]");
  const button = menu && document.getElementById(menu.getAttribute("aria-labelledby") ?? "");
  return [button || e];
}

/** Brings the focus back to what opened a dialog when that is taken away, or to the page where it is gone too. */
export function useWayBack(): void {
  const [way] = useState(() => [...opener(), ...(open.at(-1) ?? [])]);
  useEffect(() => {
    open.push(way);
    return () => {
      open.splice(open.indexOf(way), 1);
      // Later: a dialog that comes in its place has taken the focus by then.
      setTimeout(() => {
        if (open.includes(way) || (document.activeElement !== null && document.activeElement !== document.body)) return;
        const to = way.find((e) => e.isConnected && e.getClientRects().length > 0) ?? document.getElementById("main");
        to?.focus({ preventScroll: true });
      }, 20);
    };
  }, [way]);
}

interface DialogProps {
  title: ReactNode;
  close: () => void;
  size?: ModalProps["size"];
  /** Whether what is typed in it would be missed: then Escape, the cross and a click beside it ask first. */
  asks?: boolean;
  children: ReactNode;
}

const typing = "textarea, input:not([type=checkbox]):not([type=radio]):not([type=file])";

/** Text fields within an element, and what stood in each when it first got the focus. */
export function useTyped() {
  const within = useRef<HTMLDivElement>(null);
  const before = useRef(new Map<HTMLInputElement, string>());
  return {
    ref: within,
    onFocus: (e: React.FocusEvent) => {
      const field = e.target as HTMLInputElement;
      if (field.matches(typing) && within.current?.contains(field) && !before.current.has(field)) before.current.set(field, field.value);
    },
    changed: () => [...before.current].some(([field, text]) => field.isConnected && field.value !== text),
  };
}

/** A dialog: it takes the focus and keeps it, gives it back, and does not lose what was typed without asking. */
export function Dialog({ title, close, size, asks = true, children }: DialogProps) {
  const t = useT();
  const [asking, setAsking] = useState(false);
  const { changed, ...typed } = useTyped();
  useWayBack();
  return (
    <Modal
      opened
      onClose={() => (asks && changed() ? setAsking(true) : close())}
      closeOnEscape={!asking}
      closeOnClickOutside={!asking}
      trapFocus={!asking}
      returnFocus={false}
      title={title}
      size={size}
      closeButtonProps={{ "aria-label": t("act.close") }}
    >
      <div {...typed}>{children}</div>
      {asking && <Discard keep={() => setAsking(false)} discard={close} />}
    </Modal>
  );
}

function Discard({ keep, discard }: { keep: () => void; discard: () => void }) {
  const t = useT();
  useWayBack();
  return (
    <Modal opened onClose={keep} returnFocus={false} withCloseButton={false} title={t("discard.title")} size="sm">
      <Stack>
        <Text size="sm">{t("discard.text")}</Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={keep} data-autofocus>
            {t("discard.keep")}
          </Button>
          <Button color="red" onClick={discard}>
            {t("discard.discard")}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
