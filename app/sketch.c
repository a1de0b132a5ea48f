/* The plot for a terminal: every character is a grid of 2 x 4 braille dots. */
#include <stdlib.h>

#include "plot.h"

typedef struct canvas {
    unsigned char *cells; /* one bit per dot, in Unicode's order */
    int width, height;    /* in characters */
} canvas;

static void set_dot(canvas *c, int x, int y)
{
    static const unsigned char bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= c->width * 2 || y >= c->height * 4)
        return;
    c->cells[(y / 4) * c->width + x / 2] |= bits[y % 4][x % 2];
}

static void draw_line(canvas *c, int x0, int y0, int x1, int y1)
{
    int dx = abs(x1 - x0), dy = abs(y1 - y0), steps = dx > dy ? dx : dy;
    for (int i = 0; i <= steps; i++) {
        double part = steps ? (double)i / steps : 0;
        set_dot(c, x0 + (int)(part * (x1 - x0) + (x1 < x0 ? -0.5 : 0.5)), y0 + (int)(part * (y1 - y0) + (y1 < y0 ? -0.5 : 0.5)));
    }
}

static void draw_curves(canvas *c, const app_curves *curves, double low, double high)
{
    int right = c->width * 2 - 1, bottom = c->height * 4 - 1, last = curves->rows > 1 ? curves->rows - 1 : 1;
    for (int column = 0; column < curves->columns; column++) {
        int x0 = 0, y0 = 0;
        for (int row = 0; row < curves->rows; row++) {
            double v = curves->values[(long)row * curves->columns + column], part = (v - low) / (high - low);
            if (!(part >= 0 && part <= 1))
                continue;
            int x = (int)((double)row / last * right + 0.5), y = bottom - (int)(part * bottom + 0.5);
            draw_line(c, row ? x0 : x, row ? y0 : y, x, y);
            x0 = x;
            y0 = y;
        }
    }
}

static void add_cell(app_text *out, unsigned char dots)
{
    if (!dots) {
        app_text_add(out, " ");
        return;
    }
    unsigned code = 0x2800u + dots;
    const char utf8[3] = {(char)(0xe0 | (code >> 12)), (char)(0x80 | ((code >> 6) & 0x3f)), (char)(0x80 | (code & 0x3f))};
    app_text_bytes(out, utf8, 3);
}

void app_plot_sketch(app_text *out, const app_curves *curves, int width, int height)
{
    canvas c = {.width = width < 20 ? 20 : width, .height = height < 4 ? 4 : height};
    c.cells = calloc((size_t)c.width * (size_t)c.height, 1);
    if (!c.cells) {
        out->failed = true;
        return;
    }
    double low, high;
    app_plot_range(curves, &low, &high);
    draw_curves(&c, curves, low, high);
    app_text_add(out, "%s\n", curves->title);
    for (int row = 0; row < c.height; row++) {
        double value = high - (high - low) * row / (c.height - 1);
        if (row % 4 == 0 || row == c.height - 1)
            app_text_add(out, "%10.3g \xe2\x94\xa4", value);
        else
            app_text_add(out, "%10s \xe2\x94\x82", "");
        for (int column = 0; column < c.width; column++)
            add_cell(out, c.cells[row * c.width + column]);
        app_text_add(out, "\n");
    }
    app_text_add(out, "%10s \xe2\x94\x94", "");
    app_text_repeat(out, "\xe2\x94\x80", (size_t)c.width);
    app_text_add(out, "\n%12s0%*d  %s\n", "", c.width - 1, curves->rows - 1, curves->x_label);
    free(c.cells);
}
