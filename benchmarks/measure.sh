#!/usr/bin/env bash
# Measure a domain for docs/results.md and docs/fidelity.md, stage by stage, on one GPU, with the settings that
# paid so far (those of earlier tables stand beside them there):
#
#   bash benchmarks/measure.sh antmaze-medium data policy ghm fidelity random eval one world steady paper near regret uniform
#
# Every stage goes on where it was stopped, and one that has ended is left out, so the same line can be
# given again until all is done. Runs and rows lie in $MEASURE (measure/DOMAIN). Two stages that do not
# need each other may run side by side, and so may two domains. With UNTIL (seconds since 1970) a stage waits until
# what it needs has ended (STAGE.done is there; touch it beside a run made elsewhere), none begins after that, and a study
# of regret begins no further state:
#
#   export UNTIL=$(($(date +%s) + 1500))
#   for domain in antmaze-medium cube-2; do bash benchmarks/measure.sh $domain data; done &
#   bash benchmarks/measure.sh antmaze-medium policy ghm regret & bash benchmarks/measure.sh cube-2 policy ghm eval & wait
#
# PLANNERS are those of the stage eval (zero-shot compplan gpi). To try it out, EPISODES_OF_DATA,
# POLICY_STEPS, POLICY_SET, STEPS, GHM_SET (instead of the domain's settings, hc_fraction among them), FIDELITY
# (further options of `jumpy fidelity`), WORLD_STEPS, WORLD_SET (instead of a fall over its steps),
# EPISODES, FEW (of the uniform search) and STATES make everything small.
set -euo pipefail
domain=${1:?usage: measure.sh DOMAIN STAGE...}
shift
here=${MEASURE:-measure}/$domain
jumpy=${JUMPY:-jumpy}
seed=${SEED:-500}
mkdir -p "$here"

# What each domain needs: steps of the policy and of the model, its settings, where candidates come from.
rates=(final_lr_fraction=0.05 target_rate=0.02 final_target_rate=0.005 normaliser=paced)
search=(--search elimination --rounds 64x8 12x24 3x64 --candidates 64)
fifty() { printf '50 %.0s' $(seq "$1"); }
case $domain in
  pointmaze-*)
    policy_steps=40000 steps=45000
    goals=0.99 # as far as those of its GC-BC, as hindsight asks
    if [ "$domain" = pointmaze-giant ]; then goals=0.995; fi
    settings=(width=256 precision=bf16 jumps=ahead learning_rate=1e-3 hindsight=0.1 "goal_discount=$goals" hc_fraction=0.5)
    ways=(--proposal bridge --horizons $(fifty 8)) every=(--replan-every 5 --discount 0.995) ;;
  antmaze-*)
    policy_steps=100000 steps=36000
    settings=(learning_rate=5e-4 z_frame=moving hc_fraction=0.5)
    ways=(--proposal bridge --horizons $(fifty 8)) every=(--replan-every 5 --discount 0.995) ;;
  cube-*)
    policy_steps=90000 steps=25000
    settings=(learning_rate=5e-4 hc_fraction=0.5)
    ways=(--proposal trace --horizons $(fifty 6)) every=(--replan-every 5 --discount 0.99) ;;
  *) echo "measure.sh: no settings for $domain" >&2; exit 2 ;;
esac
if [ "$domain" = pointmaze-giant ]; then
  ways=(--proposal bridge --horizons $(fifty 12)) every=(--replan-every 5 --discount 0.997)
fi
policy_steps=${POLICY_STEPS:-$policy_steps} steps=${STEPS:-$steps}
if [ -n "${GHM_SET:-}" ]; then read -ra settings <<< "$GHM_SET"; fi
ways+=(--precedents "$here/data" --when-all-zero candidate --precision bf16)
quarters=($((steps / 8)) $((steps / 4)) $((steps / 2)))

evaluate() { # NAME ARGUMENT...: one `jumpy eval` into a folder of its own
  local name=$1
  shift
  $jumpy eval --domain "$domain" --policy "$here/policy" --episodes "${EPISODES:-20}" --seed "$seed" \
    "${every[@]}" --solver midpoint --ode-steps 2 --out "$here/$name" "$@"
}

fidelity() { # NAME ARGUMENT...: the model and what it was after an eighth, a quarter and half of its steps
  local name=$1 models=(--ghm "$here/ghm")
  shift
  for step in "${quarters[@]}"; do models+=(--ghm "$here/ghm/checkpoints/step-$(printf %09d "$step")"); done
  $jumpy fidelity "${models[@]}" --policy "$here/policy" --dataset "$here/data" --preset quick \
    --out "$here/$name" "$@" ${FIDELITY:-}
}

data() { $jumpy data generate "$domain" --out "$here/data" ${EPISODES_OF_DATA:+--episodes $EPISODES_OF_DATA}; }

policy() {
  $jumpy train policy gcbc --dataset "$here/data" --preset paper --steps "$policy_steps" \
    --set "gradient_steps=$policy_steps" ${POLICY_SET:-} --out "$here/policy"
}

ghm() {
  $jumpy train ghm --dataset "$here/data" --policy "$here/policy" --preset base --steps "$steps" \
    --keep-steps "${quarters[@]}" --set "gradient_steps=$steps" "${rates[@]}" "${settings[@]}" \
    --out "$here/ghm"
}

world() { # ActionPlan's model of one step, and its row
  local steps=${WORLD_STEPS:-10000}
  $jumpy train world-model --dataset "$here/data" --preset base --steps "$steps" \
    --set ${WORLD_SET:-gradient_steps=$steps} --out "$here/world"
  evaluate actionplan --planner zero-shot actionplan --world-model "$here/world" --candidates 64
}

one() { # a single bridge or trace, which no model judges: what the model's choice must beat
  local believed=(--no-refuse)
  if [[ $domain = cube-* ]]; then believed=(); fi # where nothing is refused anyway
  evaluate one --planner zero-shot compplan --ghm "$here/ghm" "${ways[@]}" --search uniform --candidates 1 \
    --samples 1 "${believed[@]}"
}

steady() { # against dithering: the last plan stands among the candidates, and another must be worth a tenth more
  evaluate steady --planner zero-shot compplan --ghm "$here/ghm" "${ways[@]}" "${search[@]}" --warm-start 4 --margin 0.1
}

paper() { # the paper's own proposal, horizons and discount, and the base policy; searched as `bench plan`'s fast-2 does
  local every=(--replan-every 5)
  evaluate paper --planner zero-shot compplan --ghm "$here/ghm" --precision bf16 --include-base \
    --search elimination --rounds 256x16 32x48 4x192 --candidates 256
}

near() { # the same, judged by how near chains come, where too few arrive to tell candidates apart
  local every=(--replan-every 5)
  evaluate near --planner zero-shot compplan --ghm "$here/ghm" --precision bf16 --include-base --reward neg-distance \
    --search elimination --rounds 256x16 32x48 4x192 --candidates 256
}

uniform() { # the paper's candidates and search, on a few episodes of one task: a plan costs twenty times as much
  local every=(--replan-every 5)
  EPISODES=${FEW:-3} evaluate uniform --planner zero-shot compplan --tasks 1 --ghm "$here/ghm" \
    --search uniform --candidates 256 --samples 256 --solver euler --ode-steps 20
}

regret() { # of the cheap searches, against the paper's with four times its chains; bf16 tells what precision does
  local minutes=${MINUTES:-9}
  if [ -n "${UNTIL:-}" ]; then # whichever comes first
    minutes=$(awk "BEGIN {left = ($UNTIL - $(date +%s)) / 60; most = ${MINUTES:-left}
      if (left > most) left = most; print (left > 0.01) ? left : 0.01}")
  fi
  $jumpy bench plan --domain "$domain" --ghm "$here/ghm" --policy "$here/policy" --dataset "$here/data" \
    --pairs in-support --reward neg-distance --states "${STATES:-200}" --reference "$here/reference" \
    --reference-precision bf16 --minutes "$minutes" --rounds 6 --only paper bf16 fast-3 fast-2 --out "$here/regret"
}

for stage in "$@"; do # before anything is waited for
  case " data policy ghm fidelity random eval one world steady paper near regret uniform " in
    *" $stage "*) ;;
    *) echo "measure.sh: no stage $stage" >&2; exit 2 ;;
  esac
done

late() { [ -n "${UNTIL:-}" ] && [ "$(date +%s)" -ge "$UNTIL" ]; }

needs() { # STAGE: those that must have ended before it
  case $1 in data) ;; policy) echo data ;; ghm) echo policy ;; world) echo policy ;; *) echo ghm ;; esac
}

for stage in "$@"; do
  if [ -e "$here/$stage.done" ]; then continue; fi
  if [ -n "${UNTIL:-}" ]; then
    for need in $(needs "$stage"); do
      until [ -e "$here/$need.done" ] || late; do sleep 1; done
    done
  fi
  if late; then
    echo "[$domain] $stage: no time left; it needs: $(needs "$stage")" >&2
    exit 3
  fi
  began=$SECONDS
  echo "[$domain] $stage begins at $(date +%T)"
  case $stage in
    data | policy | ghm | world | one | steady | paper | near | uniform | regret) $stage ;;
    fidelity) fidelity in-support --pairs in-support --gammas 0 0.5 0.8 0.9 0.96 0.98 0.99 0.995 ;;
    # As many rollouts and samples as in the paper, of fewer pairs (24 of 256).
    random) fidelity random --pairs random --gammas 0.99 0.995 --num-pairs 24 --num-rollouts 64 --num-samples 2048 ;;
    eval) evaluate planners --planner ${PLANNERS:-zero-shot compplan gpi} --ghm "$here/ghm" "${ways[@]}" "${search[@]}" ;;
  esac
  # A study of regret that its time cut short goes on with more states.
  if [ "$stage" != regret ]; then touch "$here/$stage.done"; fi
  echo "[$domain] $stage: $((SECONDS - began)) s"
done
