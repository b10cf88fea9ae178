// A request to its answer, without sockets: a pure function of the request, the guard and the library. What there is:
//
//   /                   the page of the runs: list, comparison, trends (web/src/runs)
//   /runs/N             the page of a run's result
//   /runs/N/timeline    the same with a timeline made of the recording, where none was kept
//   /diff/N,.../N,...   the page of `llmprof diff` for these runs before and after; where there is none, the way to
//   "/",
//                       which says why
//   /api/runs           the rows of all runs       llmprof.runs/1, without folders, texts cut to kTextMost bytes
//   /api/runs/N         the manifest of a run      llmprof.manifest/1
//   /api/runs/N/result  its result, as it was kept
//   /api/diff/N,.../N,...  what it says            llmprof.diff/1, or of bench llmprof.bench.comparison/1
//   /api/trends         TTFT and TPOT over runs    llmprof.trends/1
//   /favicon.ico        nothing
//
// Nothing else is a route: a target with anything before or behind, a query, an escape or a number in another form is
// not found. Every answer, errors too, forbids to be kept, framed, guessed at and fetched by other sites.
#pragma once

#include "serve/commands.h"
#include "serve/guard.h"
#include "serve/library.h"
#include "serve/message.h"

namespace llmprof::serve {

constexpr size_t kTextMost = 1000;
constexpr size_t kComparedMost = 20;  // runs of both sides together

// With what every answer forbids, whoever makes it.
Response sealed(Response response);
// Its headers are all that go out, but for Content-Type, Content-Length and Connection.
// What takes seconds is returned as a function, to be called by another thread while others are answered; `guard` need
// not live as long.
Answer answer(const Request& request, const Guard& guard, const Library& library, const Commands& commands);

}  // namespace llmprof::serve
