#!/usr/bin/env bash
# Prepares a container of manylinux_2_28 (AlmaLinux 8) for cibuildwheel, once for all its wheels.
#
#   tools/wheel/before_all.sh PREFIX     builds the libraries into PREFIX
set -euo pipefail
# OpenSSL is configured by Perl, and libjpeg-turbo's vector code is assembled by nasm.
dnf --assumeyes --quiet install nasm perl-core openssl pkgconf-pkg-config
exec "$(dirname "${BASH_SOURCE[0]}")/build_libraries.sh" "$1"
