import "uplot/dist/uPlot.min.css";
import { Paper, Text, useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { timeMode } from "../app/prefs";
import { useT } from "../i18n";
import { bytes, count, duration, type TimeMode, time } from "../lib/format";
import { useStore } from "../lib/store";

export interface Series {
  name: string;
  unit: string;
  points: [number, number | null][];
}

export function valueText(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes_per_s") return `${bytes(value)}/s`;
  if (unit === "bytes") return bytes(value);
  if (unit === "ms") return value < 10 ? `${Number(value.toFixed(2))} ms` : duration(value);
  return unit.endsWith("_per_s") ? `${count(value)}/s` : count(value);
}

/** A time at the foot of a chart, as exact as its steps are (s). */
function clock(ms: number, step: number, mode: TimeMode): string {
  const text = time(ms, mode === "utc" ? "utc" : "local", 0);
  return step >= 86_400 ? text.slice(5, 10) : step >= 60 ? text.slice(11, 16) : text.slice(11, 19);
}

/** What was measured last: the newest points may still be without a value. */
const latest = (s: Series): number | null => s.points.findLast(([, value]) => value !== null)?.[1] ?? null;

const colors = { light: ["#0b6e8f", "#b4530a"], dark: ["#5cc4e6", "#f2a65a"] };

/** Lines over time, up to two. What the picture shows is also said in words for those who cannot see it. */
export default function Chart({ title, series, height = 150 }: { title: string; series: Series[]; height?: number }) {
  const t = useT();
  const box = useRef<HTMLDivElement>(null);
  const scheme = useComputedColorScheme("light");
  const mode = useStore(timeMode);
  const unit = series[0]?.unit ?? "count";
  const empty = series.every((s) => s.points.every(([, value]) => value === null));
  useEffect(() => {
    const element = box.current;
    if (!element || empty) return;
    const ink = scheme === "dark" ? "#c9c9c9" : "#495057";
    const grid = scheme === "dark" ? "#3b3b3b" : "#e9ecef";
    const times = [...new Set(series.flatMap((s) => s.points.map(([ms]) => ms)))].sort((a, b) => a - b);
    // One point alone spans no time: the minute before it is shown too.
    if (times.length === 1) times.unshift((times[0] ?? 0) - 60_000);
    const data = [
      times.map((ms) => ms / 1000),
      ...series.map((s) => {
        const at = new Map(s.points);
        return times.map((ms) => at.get(ms) ?? null);
      }),
    ] as uPlot.AlignedData;
    const plot = new uPlot(
      {
        width: Math.max(element.clientWidth, 200),
        height,
        tzDate: (ts) => (mode === "utc" ? uPlot.tzDate(new Date(ts * 1000), "Etc/UTC") : new Date(ts * 1000)),
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
        axes: [
          {
            stroke: ink,
            grid: { stroke: grid },
            ticks: { stroke: grid },
            size: 32,
            values: (_, splits) => splits.map((s) => clock(s * 1000, (splits[1] ?? s) - (splits[0] ?? s), mode)),
          },
          {
            stroke: ink,
            grid: { stroke: grid },
            ticks: { stroke: grid },
            size: (_, values) => 22 + 7 * Math.max(6, ...(values ?? []).map((v) => v.length)),
            values: (_, values) => values.map((v) => valueText(v, unit)),
          },
        ],
        series: [
          {},
          ...series.map((s, i) => ({ label: s.name, stroke: colors[scheme][i], width: 1.5, points: { show: times.length < 3 } })),
        ],
      },
      data,
      element,
    );
    const observer = new ResizeObserver(() => plot.setSize({ width: Math.max(element.clientWidth, 200), height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [series, scheme, mode, unit, height, empty]);
  const words = series.map((s) => `${s.name}: ${valueText(latest(s), s.unit)}`).join(" · ");
  return (
    <Paper withBorder p="sm" radius="md" component="figure" m={0}>
      <Text component="figcaption" size="sm" fw={600}>
        {title}
      </Text>
      <Text size="sm" c="dimmed" component="div">
        {series.map((s, i) => (
          <span key={s.name} style={{ marginInlineEnd: 12 }}>
            {series.length > 1 && (
              <span aria-hidden style={{ color: colors[scheme][i], fontWeight: 700 }}>
                ▬{" "}
              </span>
            )}
            {series.length > 1 ? `${s.name} ` : ""}
            {valueText(latest(s), s.unit)}
          </span>
        ))}
      </Text>
      {empty ? (
        <Text size="sm" c="dimmed" py="lg" ta="center">
          {t("chart.empty")}
        </Text>
      ) : (
        <div ref={box} role="img" aria-label={`${title}. ${words}`} />
      )}
    </Paper>
  );
}
