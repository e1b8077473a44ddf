// Global variables as programs have them, before any header of the library. A name of the library that hides one of
// them is a warning of -Wshadow, and with -Werror an error that the program can do nothing about. GCC looks for hidden
// globals where it defines constructors and instantiates lambdas; nvcc hands it the library's templates, so there it
// does too.
#pragma once

// NOLINTBEGIN
int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z;
int zero, one, two, first, second, last, next, previous, left, right, low, high;
int word, words, data, size, count, length, width, height, depth, offset, position, base, total, sum, result, results;
int value, values, name, names, key, keys, id, ids, item, items, entry, entries, list, table, map, set, tree, node,
    nodes;
int block, blocks, grid, thread, threads, lane, warp, batch, batches, layer, layers, weight, weights, shape, alpha,
    beta;
int stream, streams, arena, device, devices, gpu, gpus, host, memory, kernel, kernels, launch, launches, event, events;
int page, pages, buffer, buffers, pointer, pointers, address, array, arrays, view, range;
int step, steps, state, states, status, error_code, errors, now, start, stop, begin_time, end_time, done, ready,
    running;
int options, opts, config, args, arg, argument, arguments, seed, rate, budget, capacity, used, available, limit;
int in, out, input, inputs, output, outputs, source, target, path, paths, file, files, line, lines, text;
int message, messages, label, trace, policy, profile, pattern;
int lock, mutex, guard, queue, stack, temporary, scratch, workspace, ptr, buf, len, num, idx, pos, cur, prev, tmp, val,
    res;
bool verbose, quiet, failed, enabled, finished;
// NOLINTEND
