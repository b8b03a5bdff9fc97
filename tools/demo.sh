#!/usr/bin/env bash
# Goes from nothing to a trained network and its proofs: installs what is missing, builds, draws
# images, packs them into shards, indexes the shards, and trains on two ranks.
#
#   tools/demo.sh [--small] [FOLDER]
#
#   --small   half of the images, to see that everything works; the network learns less
#   FOLDER    where the data is written (with --small: in its sub-folder small); default: demo-data
#             beside this project
#
# After a stop, run it again: it continues with what exists. It writes to FOLDER and to
# build-release/. Removing both undoes everything except the installed packages.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

train_images=20000
eval_images=2001 # odd, so that two ranks get unequal numbers of images
least_accuracy=90
small=
if [[ ${1:-} == --small ]]; then
  train_images=10000 eval_images=1001 least_accuracy=50
  small=/small
  shift
fi
[[ ${1:-} != -* && $# -le 1 ]] || fail "usage: tools/demo.sh [--small] [FOLDER]"
data=${1:-$SHARDWISE_SOURCE_DIR/demo-data}$small
mkdir -p "$data"
data=$(cd "$data" && pwd)
programs=$SHARDWISE_SOURCE_DIR/build-release/bin

heading "1 of 6: setting up"
install_groups build
choose_compiler
say "all packages are there"

# configure NAME CMAKE-ARGUMENT...
configure() {
  cmake --preset release "${@:2}" >"$data/configure-$1.log" || {
    cat "$data/configure-$1.log"
    fail "CMake cannot configure: see its messages above"
  }
}

heading "2 of 6: building the library and the command line (build-release/)"
cd "$SHARDWISE_SOURCE_DIR"
configure core -DSHARDWISE_WITH_LIBTORCH=OFF
cmake --build --preset release --target shardwise_program make_shapes

make_data() {  # NAME COUNT SEED
  # Each step creates its result completely or not at all, so an existing result is complete.
  [[ -d $data/images/$1 ]] || "$programs/make_shapes" --count "$2" --seed "$3" "$data/images/$1"
  [[ -f $data/shards/$1/classes.json ]] ||
    "$programs/shardwise" pack --images "$data/images/$1" --shuffle --seed "$3" --force \
      --max-samples 1000 -o "$data/shards/$1"
  "$programs/shardwise" index -o "$data/$1.idx" "$data/shards/$1"
}

heading "3 of 6: drawing images, packing them into shards, indexing; an epoch with its proof"
mkdir -p "$data/images"
make_data eval "$eval_images" 2
"$programs/shardwise" info "$data/eval.idx"
"$programs/shardwise" epoch "$data/eval.idx" --decode rgb --resize 32x32

heading "4 of 6: the same with more images, to train on"
make_data train "$train_images" 1

heading "5 of 6: building what trains, on LibTorch"
have_libtorch || fail "$NO_LIBTORCH"
configure libtorch -DSHARDWISE_WITH_LIBTORCH=ON
cmake --build --preset release --target shardwise-train

ranks=2
[[ $("$programs/shardwise-train" --version) != *"one rank only"* ]] || ranks=1
heading "6 of 6: training for 2 epochs, ranks: $ranks"
"$programs/shardwise-train" --local-ranks "$ranks" --global-batch-size 64 --epochs 2 --train "$data/train.idx" \
  --eval "$data/eval.idx" --checkpoint "$data/model.pt" | tee "$data/train.log"

awk -v least="$least_accuracy" '$1 == "accuracy" { accuracy = $2 } END { exit !(accuracy >= least) }' \
  "$data/train.log" ||
  fail "the network learned less than it should: at least $least_accuracy % was expected"
