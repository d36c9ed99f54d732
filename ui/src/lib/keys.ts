/** Whether the focus is on something that has a use of its own for Enter and Space. */
export const onControl = (): boolean => document.activeElement?.closest("a[href], button, summary, [role=button], [role=option]") != null;
