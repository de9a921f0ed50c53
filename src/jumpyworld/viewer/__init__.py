"""The browser page: click a goal, see the model's samples, the candidates and the chosen plan.

    opened    which models: folders to a policy with its model
    known     what data know of a maze, kept in a small file
    candidates where a plan's candidates come from
    scene     what is drawn, and how a click becomes a goal
    stage     the real environment
    thinking  samples and plans, compiled once per shape
    explain   a plan as plain values, and why it won
    session   one model's stage, goal and plan; what every request does
    fields    requests, checked by shape and range
    engine    the one thread that computes, with a short queue
    guard     who may ask: Host, Origin, token, sizes
    app, play the HTTP routes and the stream of a playing environment
    server    uvicorn around them

Needs the extras ``viewer`` and ``ogbench``.
"""
