import { Badge } from "@mantine/core";
import { useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { idOf, keyOf, payloadOf, type Rec } from "../api/records";
import { stringifySearch } from "../app/search";
import { useT } from "../i18n";
import type { Decoder } from "../lib/decode";
import { prefix } from "../lib/prefix";
import { FieldText } from "./fieldText";
import { Time } from "./time";

interface Props {
  topic: string;
  records: Rec[];
  decoder: Decoder;
  selected?: string;
  cursor?: number;
  onOpen: (r: Rec) => void;
  height?: string;
}

/** Records, one a row; each is a link to itself. Only the rows in sight are in the page. */
export function RecordTable({ topic, records, decoder, selected, cursor = -1, onOpen, height = "calc(100vh - 330px)" }: Props) {
  const t = useT();
  const search = useSearch({ strict: false }) as Record<string, unknown>;
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({ count: records.length, getScrollElement: () => box.current, estimateSize: () => 36, overscan: 8 });
  useEffect(() => {
    if (cursor >= 0) rows.scrollToIndex(cursor);
  }, [cursor, rows]);
  const narrow = window.matchMedia("(max-width: 48em)").matches;
  const template = narrow ? "80px minmax(60px,1fr) minmax(90px,2fr)" : "110px 215px minmax(90px, 1fr) minmax(180px, 3fr) 44px";
  return (
    // biome-ignore lint/a11y/useSemanticElements: rows are placed by hand, which a table element does not allow
    <div
      ref={box}
      className="tw-grid"
      role="table"
      aria-label={t("tab.messages")}
      aria-rowcount={records.length + 1}
      tabIndex={0}
      style={{ maxHeight: height, minHeight: 240 }}
    >
      {/* biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive: as above */}
      <div role="row" className="tw-row tw-head" style={{ gridTemplateColumns: template }}>
        {[
          t("record.place"),
          ...(narrow ? [] : [t("record.time")]),
          t("record.key"),
          t("record.value"),
          ...(narrow ? [] : [t("record.headersShort")]),
        ].map((label) => (
          // biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive: as above
          <span role="columnheader" key={label} className="tw-cut">
            {label}
          </span>
        ))}
      </div>
      {/* biome-ignore lint/a11y/useSemanticElements: as above */}
      <div role="rowgroup" style={{ height: rows.getTotalSize(), position: "relative" }}>
        {rows.getVirtualItems().map(({ index, start, size }) => {
          const record = records[index];
          if (!record) return null;
          const id = idOf(record);
          return (
            // biome-ignore lint/a11y/useSemanticElements lint/a11y/useFocusableInteractive lint/a11y/useKeyWithClickEvents: the link in the row is what the keyboard reaches
            <div
              role="row"
              key={id}
              aria-rowindex={index + 2}
              className="tw-row"
              data-selected={id === selected || index === cursor}
              style={{
                gridTemplateColumns: template,
                position: "absolute",
                insetInline: 0,
                height: size,
                transform: `translateY(${start}px)`,
                cursor: "pointer",
              }}
              onClick={() => onOpen(record)}
            >
              {/* biome-ignore lint/a11y/useSemanticElements: as above */}
              <span role="cell" className="tw-cut">
                <a
                  href={`${prefix}/ui/topics/${encodeURIComponent(topic)}/messages${stringifySearch({ ...search, open: id })}`}
                  className="tw-link tw-mono"
                  onClick={(e) => {
                    if (e.metaKey || e.ctrlKey || e.shiftKey || e.altKey)
                      e.stopPropagation(); // another tab or window
                    else e.preventDefault(); // the row opens it
                  }}
                >
                  {id}
                </a>
              </span>
              {!narrow && (
                // biome-ignore lint/a11y/useSemanticElements: as above
                <span role="cell" className="tw-cut">
                  <Time at={record.timestamp} />
                </span>
              )}
              {/* biome-ignore lint/a11y/useSemanticElements: as above */}
              <span role="cell" className="tw-cut">
                <FieldText field={keyOf(record)} decoder={decoder} most={200} />
              </span>
              {/* biome-ignore lint/a11y/useSemanticElements: as above */}
              <span role="cell" className="tw-cut">
                <FieldText field={payloadOf(record)} decoder={decoder} />
              </span>
              {!narrow && (
                // biome-ignore lint/a11y/useSemanticElements: as above
                <span role="cell">
                  {record.headers.length > 0 && (
                    <Badge size="sm" variant="default" aria-label={t("record.headerCount", { n: record.headers.length })}>
                      {record.headers.length}
                    </Badge>
                  )}
                </span>
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}
