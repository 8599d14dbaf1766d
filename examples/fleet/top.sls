base:
  '*':
    - base
  'dev1.devco.net':
    - database
  'L@dev2.devco.net,dev3.devco.net,dev4.devco.net':
    - web
  'dev4.devco.net':
    - balancer
