$l = [1, 2, 3].map |$x| { $x * 2 }
$h = { "a" => $l.reduce |$m, $x| { $m + $x } }
function f(Integer $n) >> Integer { if $n <= 1 { 1 } else { $n * f($n - 1) } }
notice("${h[a]} ${f(5)}")
