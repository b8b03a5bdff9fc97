#!/usr/bin/env bash
# Makes the report of 20,000 drawn images, and pictures of it as a phone and a desktop show it, light
# and dark. Replaces docs/pictures/report.png by the top of one of them.
#
#   tools/report_picture.sh
#
# Needs the programs and the Python package in build-test/, which tools/test.sh builds. Installs the
# group `pictures` of packages.txt. Writes to build-report/. Look at the pictures there after a change
# of the report.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
cd "$SHARDWISE_SOURCE_DIR"
programs=$PWD/build-test/bin
python=$PWD/build-test/venv/bin/python
work=$PWD/build-report

heading "Setting up"
install_groups pictures
cmake --build build-test --target shardwise_package shardwise_program make_shapes

heading "Making the report (build-report/report.html)"
mkdir -p "$work/images"
cd "$work"
[[ -d images/train ]] || "$programs/make_shapes" --count 20000 --seed 1 images/train
[[ -f shards/classes.json ]] ||
  "$programs/shardwise" pack --images images/train --shuffle --seed 1 --force --max-samples 1000 -o shards
"$programs/shardwise" index --column cls -o train.idx shards
"$programs/shardwise" epoch train.idx --decode rgb --resize 32x32 --trace trace.json
PYTHONPATH=$SHARDWISE_SOURCE_DIR/build-test/python "$python" -m shardwise report train.idx \
  --sampler sharded --seed 17 --trace trace.json --pictures

heading "Drawing it in Chromium"
# Chromium's windows are at least 500 pixels wide, so a frame has the width of a phone.
for width in 390 1280; do
  printf '<!doctype html><body style="margin:0"><iframe src="report.html" style="border:0;width:%dpx;height:8000px"></iframe>' \
    "$width" >"frame-$width.html"
  for scheme in 0-dark 1-light; do
    chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --window-size="$width,8000" \
      --blink-settings=preferredColorScheme="${scheme%-*}" --screenshot="report-$width-${scheme#*-}.png" \
      "file://$work/frame-$width.html" 2>/dev/null
  done
done
"$python" - "$SHARDWISE_SOURCE_DIR/docs/pictures/report.png" <<'PYTHON'
import sys
from PIL import Image

top = Image.open("report-1280-light.png").convert("RGB").crop((0, 0, 1280, 2042))
top.quantize(64, dither=Image.Dither.NONE).save(sys.argv[1], optimize=True)
PYTHON
say "look at build-report/report-*.png"
