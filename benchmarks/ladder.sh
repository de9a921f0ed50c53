#!/usr/bin/env bash
# The ladder of docs/fidelity.md and what pays on it, on one GPU:
#
#   bash benchmarks/ladder.sh sets one point ant
#
# sets    the data of pointmaze-large and antmaze-medium, and a GC-BC policy for each
# one     rung a: the scripted policy to one goal, within five minutes, scored at each quarter
# basics  rung b: what the paper fixes and what we changed of it, one at a time, three seeds
# point   rung b: one change at a time, three seeds
# ant     the same on antmaze-medium
# units   on antmaze-medium: the units of noise, errors and goals
# minute  the same at equal time, a minute each, one seed: what a larger batch or more consistency costs and gives
#
# Stages after the first do not wait for each other and may run side by side. Rows go to
# $LADDER/rows/ablation.jsonl. VARIANTS="none: wide:width=512" takes these instead of those of basics, point or units, and none is begun
# after DEADLINE seconds. To try it out, make STEPS, ONE_STEPS, SECONDS_EACH, DATA_EPISODES and POLICY_STEPS small,
# with WIDTH=32 and SMALL="--pairs 4 --rollouts 4 --samples 32 --rollout-steps 60 --seeds 1".
set -euo pipefail
here=${LADDER:-ladder}
python=${PYTHON:-python}
jumpy=${JUMPY:-jumpy}
mkdir -p "$here"
# Rates, but for variants that let them fall, and gradients as they are, as all was measured.
constant=(final_lr_fraction=1.0 final_target_rate=null grad_clip=0)

sets() {
  local domain policy_steps
  for domain in pointmaze-large antmaze-medium; do
    policy_steps=${POLICY_STEPS:-$([ $domain = antmaze-medium ] && echo 100000 || echo 40000)}
    $jumpy data generate $domain --out "$here/sets/$domain" ${DATA_EPISODES:+--episodes $DATA_EPISODES}
    $jumpy train policy gcbc --dataset "$here/sets/$domain" --preset paper --steps "$policy_steps" \
      --set "gradient_steps=$policy_steps" ${POLICY_SET:-} --out "$here/policies/$domain"
  done
}

compare() { # DOMAIN VARIANT... OPTION...
  local domain=$1
  shift
  $python "$(dirname "$0")/ghm_ablation.py" "$@" --domain "$domain" --sets "$here/sets" \
    --runs "$here/runs" --out "$here/rows" --deadline "${DEADLINE:-99999}" ${SMALL:-}
}

one() {
  compare pointmaze-large one-goal: --one-goal --steps "${ONE_STEPS:-45000}" --seeds 1 --curve 4 \
    --rollout-steps 1000 --set width=${WIDTH:-256} learning_rate=1e-3 final_lr_fraction=0.05 target_rate=0.02 \
    final_target_rate=0.005 hc_fraction=0.5 grad_clip=0
}

basics() {
  compare pointmaze-large ${VARIANTS:-none: slow-target:target_rate=0.005 fast-target:target_rate=0.05 absolute:frame=absolute \
    flow:hc_fraction=0.0 hc-half:hc_fraction=0.5 scale-1:data_scale=1.0 raw:normaliser=identity steps-10:train_steps=10 \
    midpoint:solver=midpoint,train_steps=3 uniform:gamma_sampler=uniform,beta_sampler=uniform \
    gamma-uniform:gamma_sampler=uniform beta-uniform:beta_sampler=uniform beta-log:beta_sampler=log_uniform \
    trajectory:uncond_source=trajectory} \
    --kinds in-support --policy "$here/policies/pointmaze-large" --steps "${STEPS:-6000}" \
    --set width=${WIDTH:-256} normaliser=scaled learning_rate=1e-3 target_rate=0.02 "${constant[@]}"
}

point() {
  compare pointmaze-large ${VARIANTS:-none: hindsight:hindsight=0.1 hindsight-matched:hindsight=0.1,goal_discount=0.99 \
    nearer-goals:goal_discount=0.99 \
    falling-both:final_lr_fraction=0.05,final_target_rate=0.005 falling-learning:final_lr_fraction=0.05 \
    falling-target:final_target_rate=0.005 wide:width=512 narrow:width=128 batch-256:batch_size=256 \
    batch-4096:batch_size=4096 slow-learning:learning_rate=3e-4 fast-learning:learning_rate=3e-3 \
    ratio:beta_sampler=ratio now:jumps=now every-time:jumps=now,bootstrap_grid=every curriculum:curriculum=0.5 \
    hindsight-30:hindsight=0.3} \
    --kinds in-support --policy "$here/policies/pointmaze-large" --steps "${STEPS:-6000}" \
    --set width=${WIDTH:-256} learning_rate=1e-3 target_rate=0.02 "${constant[@]}"
}

ant() {
  compare antmaze-medium falling: hindsight:hindsight=0.1,goal_discount=0.99 \
    consistent:hc_fraction=0.85 ratio:hc_fraction=0.85,beta_sampler=ratio \
    landed:hc_fraction=0.85,beta_sampler=ratio,landings=16384 power:step_power=0.5 \
    ratio-power:hc_fraction=0.75,beta_sampler=ratio,step_power=0.5 \
    --kinds in-support --policy "$here/policies/antmaze-medium" --steps "${STEPS:-5000}" --pairs 24 --rollouts 24 \
    --set width=${WIDTH:-256} learning_rate=1e-3 final_lr_fraction=0.05 target_rate=0.02 final_target_rate=0.005
}

units() {
  local midpoint=normaliser=paced,solver=midpoint,train_steps=3,eval_steps=10
  compare antmaze-medium ${VARIANTS:-state: frame:loss_units=frame matched:frame=matched,loss_units=frame \
    power-half:step_power=0.5 power-1:step_power=1.0 matched-half:frame=matched,step_power=0.5 paced:normaliser=paced \
    mid:$midpoint mid-rel:$midpoint,z_frame=moving mid-hc75:$midpoint,hc_fraction=0.75 \
    mid-sched:$midpoint,final_lr_fraction=0.05,final_target_rate=0.005} \
    --kinds in-support --policy "$here/policies/antmaze-medium" --steps "${STEPS:-5000}" --curve 2 --pairs 24 --rollouts 24 \
    --set width=${WIDTH:-256} normaliser=scaled learning_rate=1e-3 target_rate=0.02 "${constant[@]}"
}

minute() { # schedules need the number of steps, which is not known: rates stay as they are
  compare antmaze-medium none: batch-4096:batch_size=4096 batch-4096-fast:batch_size=4096,learning_rate=2e-3 \
    consistent:hc_fraction=0.85 ratio:hc_fraction=0.85,beta_sampler=ratio \
    landed:hc_fraction=0.85,beta_sampler=ratio,landings=16384 \
    --kinds in-support --policy "$here/policies/antmaze-medium" --seconds "${SECONDS_EACH:-60}" --seeds 1 \
    --pairs 24 --rollouts 24 --score-workers 14 \
    --set width=${WIDTH:-512} learning_rate=1e-3 target_rate=0.02 "${constant[@]}"
}

for stage in "$@"; do
  began=$SECONDS
  case $stage in
    sets | one | basics | point | ant | units | minute) $stage ;;
    *) echo "ladder.sh: no stage $stage" >&2; exit 2 ;;
  esac
  echo "[ladder] $stage: $((SECONDS - began)) s"
done
