#!/usr/bin/env python3
"""Completes command lines as if a person pressed the completion key at a terminal.

    complete.py bash|zsh SCRIPT LINE...

Starts an interactive shell that loads the completion in SCRIPT; zsh searches the folder of SCRIPT
for functions. Prints each LINE after the completion key: for bash with all possible words, for zsh
up to where it is unambiguous. A LINE must not contain single quotes."""

import os
import pty
import re
import sys

BASH = r"""
source '%s'
bind 'set enable-bracketed-paste off'
bind '"\C-x\C-a": insert-completions'
bind -x '"\C-x\C-p": printf "\n<<%%s>>\n" "$READLINE_LINE"'
PS1=
printf '<<%%s>>\n' ready
"""

ZSH = r"""
fpath=('%s' $fpath)
autoload -Uz compinit; compinit -u -D
unsetopt zle_bracketed_paste prompt_sp list_ambiguous; unset zle_bracketed_paste
bindkey '^X^A' complete-word
show() { print; print -r -- "<<$BUFFER>>" }
zle -N show
bindkey '^X^P' show
PS1=
printf '<<%%s>>\n' ready
"""


class Shell:
    def __init__(self, arguments, setup):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="dumb", INPUTRC="/dev/null", HISTFILE="/dev/null", ZDOTDIR="/nonexistent")
            os.execvp(arguments[0], arguments)
        self.seen = ""
        os.write(self.terminal, setup.replace("\n", "; ").strip("; ").encode() + b"\n")
        while self.answer() != "ready":
            pass

    def answer(self):
        """Returns the next text between << and >>."""
        while True:
            found = re.search(r"<<(.*?)>>", self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found.group(1)
            self.seen += os.read(self.terminal, 65536).decode(errors="replace").replace("\r\n", "\n")

    def complete(self, line):
        os.write(self.terminal, b"\x15" + line.encode() + b"\x18\x01\x18\x10")
        return self.answer()


def main():
    kind, script, lines = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
    if kind == "bash":
        shell = Shell(["bash", "--noprofile", "--norc", "-i"], BASH % script)
    else:
        shell = Shell(["zsh", "-f", "-i"], ZSH % os.path.dirname(script))
    for line in lines:
        print(shell.complete(line))
    os.close(shell.terminal)


if __name__ == "__main__":
    main()
