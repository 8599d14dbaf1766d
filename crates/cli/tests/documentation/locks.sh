printf '#!/bin/sh\n' > deploy
chmod +x deploy
