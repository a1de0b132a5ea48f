#include "plot.h"

#include <math.h>

enum { WIDTH = 960, HEIGHT = 480, LEFT = 70, TOP = 50, BOTTOM = 50, LEGEND = 150, LEGEND_ROW = 16 };

double app_plot_ticks(double low, double high, int about, double *first)
{
    double raw = (high - low) / about, power = 1;
    while (power * 10 <= raw)
        power *= 10;
    while (power > raw)
        power /= 10;
    double lead = raw / power;
    double step = power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
    double count = low / step;
    /* the first whole multiple at or above low, without libm */
    double whole = (double)(long long)count;
    *first = (whole < count ? whole + 1 : whole) * step;
    return step;
}

void app_plot_range(const app_curves *curves, double *low, double *high)
{
    *low = *high = 0;
    bool any = false;
    for (long i = 0; i < (long)curves->rows * curves->columns; i++) {
        double v = curves->values[i];
        if (!isfinite(v))
            continue;
        *low = !any || v < *low ? v : *low;
        *high = !any || v > *high ? v : *high;
        any = true;
    }
    double size = *high > -*low ? *high : -*low;
    if (*high - *low <= size * 1e-9 + 1e-300) {
        *low -= size > 0 ? size : 1;
        *high += size > 0 ? size : 1;
    }
}

static void add_escaped(app_text *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '<' || c == '>' || c == '&' || c == '"')
            app_text_add(out, "&#%d;", c);
        else if (c >= 0x20)
            app_text_bytes(out, text, 1);
    }
}

static void add_style(app_text *out, const app_curves *curves)
{
    app_text_add(out, "<style>\n"
                      "  svg { background: #ffffff; color: #1f2328; font: 12px system-ui, sans-serif; }\n"
                      "  text { fill: currentColor; }\n"
                      "  .grid { stroke: currentColor; stroke-opacity: 0.15; }\n"
                      "  .curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; }\n"
                      "  .curve:hover { stroke-width: 4; }\n");
    /* Neighbouring joints get hues far apart: steps of the golden angle. */
    for (int c = 0; c < curves->columns; c++)
        app_text_add(out, "  .c%d { stroke: hsl(%d, 70%%, 40%%); }\n", c, (int)(c * 137.508 + 210) % 360);
    app_text_add(out, "  @media (prefers-color-scheme: dark) {\n"
                      "    svg { background: #0d1117; color: #e6edf3; }\n");
    for (int c = 0; c < curves->columns; c++)
        app_text_add(out, "    .c%d { stroke: hsl(%d, 75%%, 65%%); }\n", c, (int)(c * 137.508 + 210) % 360);
    app_text_add(out, "  }\n</style>\n");
}

static void add_axes(app_text *out, const app_curves *curves, double low, double high, double height)
{
    double right = WIDTH - LEGEND, bottom = height - BOTTOM, first;
    double step = app_plot_ticks(low, high, 8, &first);
    for (int i = 0; first + i * step <= high + step * 1e-9; i++) {
        double value = first + i * step, y = bottom - (value - low) / (high - low) * (bottom - TOP);
        if (value < step * 1e-9 && value > -step * 1e-9)
            value = 0;
        app_text_add(out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", LEFT, y, right, y);
        app_text_add(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.5g</text>\n", LEFT - 8, y + 4, value);
    }
    int last = curves->rows > 1 ? curves->rows - 1 : 1;
    step = app_plot_ticks(0, last, 10, &first);
    step = step < 1 ? 1 : step;
    for (int i = 0; i * step <= last; i++) {
        double x = LEFT + i * step / last * (right - LEFT);
        app_text_add(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\"/>", x, TOP, x, bottom);
        app_text_add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.0f</text>\n", x, bottom + 18, i * step);
    }
    app_text_add(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (LEFT + right) / 2, bottom + 38);
    add_escaped(out, curves->x_label);
    app_text_add(out, "</text>\n<text x=\"16\" y=\"%.1f\" text-anchor=\"middle\" transform=\"rotate(-90 16 %.1f)\">", (TOP + bottom) / 2,
                 (TOP + bottom) / 2);
    add_escaped(out, curves->y_label);
    app_text_add(out, "</text>\n");
}

void app_plot_svg(app_text *out, const app_curves *curves)
{
    double low, high;
    app_plot_range(curves, &low, &high);
    double margin = (high - low) * 0.04;
    low -= margin;
    high += margin;
    int legend = TOP + BOTTOM + curves->columns * LEGEND_ROW;
    double height = legend > HEIGHT ? legend : HEIGHT, right = WIDTH - LEGEND, bottom = height - BOTTOM;
    app_text_add(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" width=\"%d\" height=\"%.0f\" role=\"img\">\n",
                 WIDTH, height, WIDTH, height);
    app_text_add(out, "<title>");
    add_escaped(out, curves->title);
    app_text_add(out, "</title>\n");
    add_style(out, curves);
    app_text_add(out, "<text x=\"%d\" y=\"28\" font-size=\"15\">", LEFT);
    add_escaped(out, curves->title);
    app_text_add(out, "</text>\n");
    add_axes(out, curves, low, high, height);
    int last = curves->rows > 1 ? curves->rows - 1 : 1;
    for (int c = 0; c < curves->columns; c++) {
        app_text_add(out, "<polyline class=\"curve c%d\" points=\"", c);
        for (int r = 0; r < curves->rows; r++) {
            double v = curves->values[(long)r * curves->columns + c];
            if (isfinite(v))
                app_text_add(out, "%s%.2f,%.2f", r ? " " : "", LEFT + (double)r / last * (right - LEFT),
                             bottom - (v - low) / (high - low) * (bottom - TOP));
        }
        app_text_add(out, "\"><title>joint %d</title></polyline>\n", c);
        double y = TOP + 8 + c * LEGEND_ROW;
        app_text_add(out, "<line class=\"curve c%d\" x1=\"%.0f\" y1=\"%.1f\" x2=\"%.0f\" y2=\"%.1f\"/>", c, right + 16, y, right + 40, y);
        app_text_add(out, "<text x=\"%.0f\" y=\"%.1f\">joint %d</text>\n", right + 48, y + 4, c);
    }
    app_text_add(out, "</svg>\n");
}
