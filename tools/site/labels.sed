# A labelled line of a comment begins a paragraph with that title.
s,^( *///) *(Errors|Cost|Threads|Threads and processes|Effects|Memory|Lifetime|Debug mode): ,\1 @par \2\n\1 ,
