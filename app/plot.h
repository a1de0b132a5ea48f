/* plot - a chunk of actions as curves: SVG for a file, characters for a terminal. */
#ifndef APP_PLOT_H
#define APP_PLOT_H

#include "text.h"

typedef struct app_curves {
    const double *values; /* [rows, columns]: one curve per column */
    int rows, columns;
    const char *title;
    const char *x_label, *y_label;
} app_curves;

/* A complete SVG document: no script, no outside reference, readable on light and dark pages. */
void app_plot_svg(app_text *out, const app_curves *curves);

/* All curves in one frame of braille dots, width x height characters with its axis. */
void app_plot_sketch(app_text *out, const app_curves *curves, int width, int height);

/* Round tick marks for [low, high]: returns their distance; *first is the lowest mark. */
double app_plot_ticks(double low, double high, int about, double *first);

/* Smallest and largest value, widened when they are equal. */
void app_plot_range(const app_curves *curves, double *low, double *high);

#endif
