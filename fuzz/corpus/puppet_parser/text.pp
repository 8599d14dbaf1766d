$a = @("END"/L)
  heredoc ${b[1]} and ${c.map |$x| { $x + 1 }}
  | END
$d = "x${if true { 1 } else { 2 }}\u{1F600}"
case $e { /re(g)x/: { notice($1) } default: { fail("no") } }
