import { createStore, rememberedStore, useStore } from "../lib/store";
import { en, type Key } from "./en";

export type { Key } from "./en";
export type Catalogue = Record<Key, string>;
export type Language = "en" | "zh-CN";

const preferred: Language = /^zh\b/i.test(navigator.language) ? "zh-CN" : "en";
export const language = rememberedStore<Language>("tidewire.language", ["en", "zh-CN"], preferred);

const catalogue = createStore<Catalogue>(en);

/** Loads the chosen language's texts; English is there from the start. */
export async function loadLanguage(): Promise<void> {
  const wanted = language.get();
  const texts = wanted === "en" ? en : (await import("./zh")).zh;
  if (language.get() !== wanted) return;
  document.documentElement.lang = wanted;
  catalogue.set(texts);
}
language.subscribe(() => void loadLanguage());

export type Values = Record<string, string | number>;

/** Fills {name}, and {n|record|records} by whether n is 1. */
export function fill(text: string, values: Values = {}): string {
  return text.replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (whole, name: string, one?: string, many?: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    if (one !== undefined && many !== undefined) return String(value) === "1" ? one : many;
    return String(value);
  });
}

export const t = (key: Key, values?: Values): string => fill(catalogue.get()[key], values);

export function useT(): typeof t {
  useStore(catalogue);
  return t;
}
